//! Ranks that are threads of one process.
//!
//! A rank is dead when its handle, with all clones and windows, has been dropped, as by a thread that ended
//! or panicked, or when somebody says so ([`Threads::declare_dead`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::{Directory, Memory, rank_over};
use crate::collective::Layout;
use crate::error::Error;
use crate::rank::Rank;
use crate::transport::Presence;

/// A fabric within this process.
#[derive(Clone)]
pub struct Threads {
    shared: Arc<Heap>,
}

struct Heap {
    members: Vec<Member>,
    parts: Mutex<BTreeMap<(u32, u32), Arc<Memory>>>,
}

#[derive(Default)]
struct Member {
    is_dead: AtomicBool,
    incarnation: AtomicU32,
}

impl Threads {
    /// A fabric for so many ranks, none of which has joined yet.
    #[must_use]
    pub fn new(rank_count: u32) -> Self {
        let bytes = Layout::new(rank_count).bytes();
        let parts = (0..rank_count).map(|rank| ((0, rank), Arc::new(Memory::heap(bytes))));
        let heap = Heap {
            members: (0..rank_count).map(|_| Member::default()).collect(),
            parts: Mutex::new(parts.collect()),
        };
        Self {
            shared: Arc::new(heap),
        }
    }

    /// The handle of a rank; for its first start. Each rank has one.
    ///
    /// # Errors
    ///
    /// `NoSuchRank`.
    pub fn join(&self, rank: u32) -> Result<Rank, Error> {
        self.member(rank)?;
        let directory = Joined {
            heap: Arc::clone(&self.shared),
            rank,
            incarnation: self.shared.presence(rank).incarnation,
        };
        rank_over(Arc::new(directory), rank)
    }

    /// A new handle for a rank that is dead: its windows are empty, its incarnation is one higher.
    ///
    /// # Errors
    ///
    /// `NoSuchRank`; `Misuse` if the rank is alive.
    pub fn rejoin(&self, rank: u32) -> Result<Rank, Error> {
        let member = self.member(rank)?;
        if !member.is_dead.load(Ordering::SeqCst) {
            return Err(Error::misuse(format!("rank {rank} is alive")));
        }
        for ((_, owner), part) in self.shared.parts.lock().iter() {
            if *owner == rank {
                part.iter().for_each(|word| word.store(0, Ordering::SeqCst));
            }
        }
        member.incarnation.fetch_add(1, Ordering::SeqCst);
        member.is_dead.store(false, Ordering::SeqCst);
        self.join(rank)
    }

    /// Tells all ranks that this one is dead.
    ///
    /// # Errors
    ///
    /// `NoSuchRank`.
    pub fn declare_dead(&self, rank: u32) -> Result<(), Error> {
        self.member(rank)?.is_dead.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Runs the same code on every rank, each on a thread of its own, and returns what each returned. A panic
    /// of one is a death for the others, and goes on here when all have ended.
    ///
    /// # Errors
    ///
    /// Those of joining.
    pub fn run<T: Send>(rank_count: u32, code: impl Fn(Rank) -> T + Sync) -> Result<Vec<T>, Error> {
        let fabric = Self::new(rank_count);
        let ranks = (0..rank_count)
            .map(|rank| fabric.join(rank))
            .collect::<Result<Vec<_>, _>>()?;
        let code = &code;
        let ended = thread::scope(|scope| {
            let threads: Vec<_> = ranks
                .into_iter()
                .map(|rank| scope.spawn(move || code(rank)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join())
                .collect::<Vec<_>>()
        });
        let mut results = Vec::with_capacity(ended.len());
        for result in ended {
            results.push(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        Ok(results)
    }

    fn member(&self, rank: u32) -> Result<&Member, Error> {
        let rank_count = self.shared.rank_count();
        let member = self.shared.members.get(rank as usize);
        member.ok_or(Error::NoSuchRank { rank, rank_count })
    }
}

impl Heap {
    fn rank_count(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    fn presence(&self, rank: u32) -> Presence {
        let member = self.members.get(rank as usize);
        Presence {
            alive: member.is_some_and(|member| !member.is_dead.load(Ordering::SeqCst)),
            incarnation: member.map_or(0, |member| member.incarnation.load(Ordering::SeqCst)),
        }
    }
}

/// The heap as one rank has it; dropped when the rank has gone.
struct Joined {
    heap: Arc<Heap>,
    rank: u32,
    incarnation: u32,
}

impl Drop for Joined {
    fn drop(&mut self) {
        // A handle of an earlier incarnation says nothing about the present one.
        if self.heap.presence(self.rank).incarnation == self.incarnation
            && let Some(member) = self.heap.members.get(self.rank as usize)
        {
            member.is_dead.store(true, Ordering::SeqCst);
        }
    }
}

impl Directory for Joined {
    fn rank_count(&self) -> u32 {
        self.heap.rank_count()
    }

    fn presence(&self, rank: u32) -> Presence {
        self.heap.presence(rank)
    }

    fn probe(&self, rank: u32) -> Presence {
        self.heap.presence(rank)
    }

    fn make_part(&self, window: u32, rank: u32, bytes: u64, is_known: bool) -> Result<(), Error> {
        let bytes = usize::try_from(bytes).map_err(|_| Error::misuse("a window larger than memory"))?;
        let mut parts = self.heap.parts.lock();
        if !(is_known && parts.contains_key(&(window, rank))) {
            parts.insert((window, rank), Arc::new(Memory::heap(bytes)));
        }
        Ok(())
    }

    fn drop_part(&self, window: u32, rank: u32) {
        self.heap.parts.lock().remove(&(window, rank));
    }

    fn part(&self, window: u32, rank: u32, _bytes: u64) -> Result<Arc<Memory>, Error> {
        let part = self.heap.parts.lock().get(&(window, rank)).cloned();
        part.ok_or(Error::RankDead {
            rank,
            during: "opening a window",
        })
    }
}
