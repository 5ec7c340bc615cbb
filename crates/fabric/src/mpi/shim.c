/* The MPI calls that the fabric uses, as plain functions: handles and constants of MPI are macros that differ
 * between libraries. Windows are numbered; every function returns MPI_SUCCESS or the library's error code, which
 * weft_error_text explains. Counts are of bytes and fit an int: the caller splits what is longer. */

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WINDOWS_MAX 128
#define PAGE_BYTES 4096
#define LINE_BYTES 64

static MPI_Win windows[WINDOWS_MAX];
/* How far behind the library's address the part of each rank begins. */
static unsigned char *shifts[WINDOWS_MAX];
static MPI_Comm fabric_comm;

int weft_start(int *rank, int *ranks, int *is_mpich) {
    int provided = 0, initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized) {
        return MPI_ERR_OTHER;
    }
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    if (code != MPI_SUCCESS) {
        return code;
    }
    if (provided < MPI_THREAD_MULTIPLE) {
        return MPI_ERR_OTHER;
    }
    /* Tags and communicators of its own: whoever uses MPI beside the fabric does not meet it. */
    code = MPI_Comm_dup(MPI_COMM_WORLD, &fabric_comm);
    if (code != MPI_SUCCESS) {
        return code;
    }
    MPI_Comm_set_errhandler(fabric_comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(fabric_comm, rank);
    MPI_Comm_size(fabric_comm, ranks);
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(version, &length);
    *is_mpich = strncmp(version, "MPICH", 5) == 0;
    return MPI_SUCCESS;
}

int weft_finish(void) {
    return MPI_Finalize();
}

void weft_abort(int code) {
    MPI_Abort(fabric_comm, code);
}

void weft_error_text(int code, char *text, int bytes) {
    char all[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (MPI_Error_string(code, all, &length) != MPI_SUCCESS) {
        length = 0;
    }
    if (length >= bytes) {
        length = bytes - 1;
    }
    memcpy(text, all, (size_t)length);
    text[length] = 0;
}

/* Collective. One access epoch for the window's whole life: passive target, shared by all. Parts begin at cache
 * lines, so that a slot of a mailbox is not on two; Open MPI's memory begins 8 bytes behind one. */
int weft_window_open(int window, size_t bytes, void **base) {
    if (window < 0 || window >= WINDOWS_MAX) {
        return MPI_ERR_ARG;
    }
    MPI_Win *win = &windows[window];
    /* Whole pages: MPICH 4.0.2 on one machine mixes up neighbouring parts of any other size. */
    size_t whole = (bytes + LINE_BYTES + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    char *start = NULL;
    int ranks = 0;
    MPI_Comm_size(fabric_comm, &ranks);
    shifts[window] = malloc((size_t)ranks);
    if (shifts[window] == NULL) {
        return MPI_ERR_NO_MEM;
    }
    int code = MPI_Win_allocate((MPI_Aint)whole, 1, MPI_INFO_NULL, fabric_comm, &start, win);
    if (code != MPI_SUCCESS) {
        return code;
    }
    MPI_Win_set_errhandler(*win, MPI_ERRORS_RETURN);
    memset(start, 0, whole);
    unsigned char shift = (unsigned char)((LINE_BYTES - (uintptr_t)start % LINE_BYTES) % LINE_BYTES);
    *base = start + shift;
    code = MPI_Win_lock_all(MPI_MODE_NOCHECK, *win);
    if (code != MPI_SUCCESS) {
        return code;
    }
    MPI_Win_sync(*win);
    /* Who has the others' shifts knows that their parts are zeros: nobody writes before. */
    return MPI_Allgather(&shift, 1, MPI_BYTE, shifts[window], 1, MPI_BYTE, fabric_comm);
}

/* Collective. */
int weft_window_close(int window) {
    int code = MPI_Win_unlock_all(windows[window]);
    free(shifts[window]);
    shifts[window] = NULL;
    return code == MPI_SUCCESS ? MPI_Win_free(&windows[window]) : code;
}

static MPI_Aint place(int window, int target, size_t offset) {
    return (MPI_Aint)(offset + shifts[window][target]);
}

/* The caller may change the bytes when this returns if `is_copied`. */
int weft_put(int window, const void *bytes, int length, int target, size_t offset, int is_copied) {
    int code = MPI_Put(bytes, length, MPI_BYTE, target, place(window, target, offset), length, MPI_BYTE, windows[window]);
    if (code == MPI_SUCCESS && is_copied) {
        code = MPI_Win_flush_local(target, windows[window]);
    }
    return code;
}

int weft_get(int window, void *into, int length, int target, size_t offset) {
    return MPI_Get(into, length, MPI_BYTE, target, place(window, target, offset), length, MPI_BYTE, windows[window]);
}

int weft_flush(int window, int target) {
    return MPI_Win_flush(target, windows[window]);
}

int weft_flush_all(int window) {
    return MPI_Win_flush_all(windows[window]);
}

int weft_fetch_add(int window, int target, size_t offset, uint64_t value, uint64_t *was) {
    int code =
        MPI_Fetch_and_op(&value, was, MPI_UINT64_T, target, place(window, target, offset), MPI_SUM, windows[window]);
    return code == MPI_SUCCESS ? MPI_Win_flush(target, windows[window]) : code;
}

int weft_compare_and_swap(
    int window, int target, size_t offset, uint64_t expected, uint64_t desired, uint64_t *was) {
    int code = MPI_Compare_and_swap(
        &desired, &expected, was, MPI_UINT64_T, target, place(window, target, offset), windows[window]);
    return code == MPI_SUCCESS ? MPI_Win_flush(target, windows[window]) : code;
}

int weft_load(int window, int target, size_t offset, uint64_t *was) {
    uint64_t unused = 0;
    int code =
        MPI_Fetch_and_op(&unused, was, MPI_UINT64_T, target, place(window, target, offset), MPI_NO_OP, windows[window]);
    return code == MPI_SUCCESS ? MPI_Win_flush(target, windows[window]) : code;
}

int weft_store(int window, int target, size_t offset, uint64_t value) {
    uint64_t was = 0;
    int code =
        MPI_Fetch_and_op(&value, &was, MPI_UINT64_T, target, place(window, target, offset), MPI_REPLACE, windows[window]);
    return code == MPI_SUCCESS ? MPI_Win_flush(target, windows[window]) : code;
}

/* Local completion only: the target sees the word soon. */
int weft_store_soon(int window, int target, size_t offset, uint64_t value) {
    int code = MPI_Accumulate(
        &value, 1, MPI_UINT64_T, target, place(window, target, offset), 1, MPI_UINT64_T, MPI_REPLACE, windows[window]);
    return code == MPI_SUCCESS ? MPI_Win_flush_local(target, windows[window]) : code;
}

/* Makes local and remote views of this rank's parts the same. */
int weft_sync(int window) {
    return MPI_Win_sync(windows[window]);
}

/* Lets the library answer others. */
int weft_progress(void) {
    int flag = 0;
    return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, fabric_comm, &flag, MPI_STATUS_IGNORE);
}

/* Two-sided messages, for comparison only. */
int weft_send(const void *bytes, int length, int target) {
    return MPI_Send(bytes, length, MPI_BYTE, target, 1, fabric_comm);
}

int weft_receive(void *into, int length, int source) {
    return MPI_Recv(into, length, MPI_BYTE, source, 1, fabric_comm, MPI_STATUS_IGNORE);
}
