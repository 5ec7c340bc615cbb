//! RocksDB in `weft bench cold`, if it is built in (feature `peers`).

#[cfg(feature = "peers")]
pub(super) use with_rocksdb::{SETTINGS, open};
#[cfg(not(feature = "peers"))]
pub(super) use without::{SETTINGS, open};

#[cfg(not(feature = "peers"))]
mod without {
    use weft_workload::driver::Contender;
    use weft_workload::ycsb::{YcsbShape, YcsbTransaction};

    use crate::arguments::LoadArguments;
    use crate::failure::Failure;

    /// Nothing to say about it.
    pub(in crate::bench) const SETTINGS: &str = "";

    /// There is none.
    pub(in crate::bench) fn open(
        _: &LoadArguments,
        _: &YcsbShape,
        _: u64,
    ) -> Result<Option<Box<dyn Contender<YcsbTransaction>>>, Failure> {
        Ok(None)
    }
}

#[cfg(feature = "peers")]
mod with_rocksdb {
    use weft_base::Prng;
    use weft_lsm_bench::key_value::{KeyValueStore, RocksStore, StoreShape, key};
    use weft_workload::driver::{Client, Contender, Finished, RunError};
    use weft_workload::ycsb::{YcsbShape, YcsbTransaction};

    use crate::arguments::LoadArguments;
    use crate::bench::BenchDir;
    use crate::failure::Failure;

    /// What is not in the rest of the configuration.
    pub(in crate::bench) const SETTINGS: &str = " rocksdb: memory=1/4 memtables,3/4 blocks block_bytes=4096 \
                                                  filter_bits=10 compression=lz4 background_jobs=2";

    /// The name in tables.
    const NAME: &str = "rocksdb";
    /// RocksDB's default.
    const BLOCK_BYTES: usize = 4096;
    const MEMTABLES: usize = 2;

    /// RocksDB with the table's rows as values.
    pub(in crate::bench) struct Rocks {
        // Closed before its directory is removed.
        store: RocksStore,
        shape: YcsbShape,
        _dir: BenchDir,
    }

    /// Opens and loads it.
    pub(in crate::bench) fn open(
        arguments: &LoadArguments,
        shape: &YcsbShape,
        memory_bytes: u64,
    ) -> Result<Option<Box<dyn Contender<YcsbTransaction>>>, Failure> {
        let dir = BenchDir::new(&arguments.within(NAME), "cold-rocksdb")?;
        std::fs::create_dir_all(&dir.path).map_err(|error| Failure::doing("making a directory", error))?;
        let memory = memory_bytes as usize;
        let sizes = StoreShape {
            memtable_bytes: (memory / 4 / MEMTABLES).max(64 << 10),
            memtables_max: MEMTABLES,
            block_cache_bytes: memory / 4 * 3,
            block_bytes: BLOCK_BYTES,
            ..StoreShape::default()
        };
        let failed = |error| Failure::doing("loading RocksDB", error);
        let store = RocksStore::open(&dir.path, &sizes).map_err(failed)?;
        let (mut random, mut row) = (Prng::new(1), Vec::new());
        for number in 0..shape.records {
            row.clear();
            row.resize_with(shape.fields * shape.field_bytes, || b'a' + random.below(26) as u8);
            store.put(&key(number), &row).map_err(failed)?;
        }
        store.settle().map_err(failed)?;
        Ok(Some(Box::new(Rocks {
            store,
            shape: *shape,
            _dir: dir,
        })))
    }

    impl Contender<YcsbTransaction> for Rocks {
        fn name(&self) -> &str {
            NAME
        }

        fn client(&self) -> Result<Box<dyn Client<YcsbTransaction> + '_>, RunError> {
            Ok(Box::new(RocksClient {
                rocks: self,
                row: Vec::new(),
                finished: 0,
            }))
        }
    }

    struct RocksClient<'r> {
        rocks: &'r Rocks,
        row: Vec<u8>,
        finished: usize,
    }

    impl RocksClient<'_> {
        /// Copies the row, as a client of it would.
        fn read(&mut self, number: u64) -> Result<(), RunError> {
            let row = &mut self.row;
            let found = self.rocks.store.get(&key(number), &mut |value| {
                row.clear();
                row.extend_from_slice(value);
                true
            });
            match found {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err(RunError(format!("RocksDB has no row {number}"))),
                Err(error) => Err(RunError::doing("reading", error)),
            }
        }
    }

    impl Client<YcsbTransaction> for RocksClient<'_> {
        fn start(&mut self, request: YcsbTransaction) -> Result<(), RunError> {
            let field_bytes = self.rocks.shape.field_bytes;
            for (n, number) in request.keys.iter().enumerate() {
                self.read(*number)?;
                if n >= request.updates {
                    continue;
                }
                let field = self
                    .row
                    .get_mut(request.field * field_bytes..)
                    .unwrap_or_default();
                for (old, new) in field.iter_mut().zip(request.value.bytes()).take(field_bytes) {
                    *old = new;
                }
                let written = self.rocks.store.put(&key(*number), &self.row);
                written.map_err(|error| RunError::doing("writing", error))?;
            }
            self.finished += 1;
            Ok(())
        }

        fn finish(&mut self) -> Result<Finished, RunError> {
            match self.finished.checked_sub(1) {
                Some(rest) => self.finished = rest,
                None => return Err(RunError("nothing is outstanding".to_owned())),
            }
            Ok(Finished::default())
        }
    }
}
