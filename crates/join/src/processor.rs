//! Which vector instructions the inner loops use: chosen at run time, all with the same results.

use std::sync::OnceLock;

/// A family of instructions that this processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Processor {
    Portable,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx2,
    /// F, BW, DQ and VL: Skylake-X, Zen 4 and later.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx512,
}

impl Processor {
    /// Those of this machine, the fastest last.
    pub(crate) fn here() -> Vec<Processor> {
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
        let mut here = vec![Processor::Portable];
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let has_bits = is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("lzcnt");
            if has_bits && is_x86_feature_detected!("avx2") {
                here.push(Processor::Avx2);
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                {
                    here.push(Processor::Avx512);
                }
            }
        }
        here
    }

    /// The fastest one of this machine.
    pub(crate) fn best() -> Processor {
        static BEST: OnceLock<Processor> = OnceLock::new();
        *BEST.get_or_init(|| Processor::here().pop().unwrap_or(Processor::Portable))
    }

    /// Its name: `portable`, `avx2` or `avx512`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Processor::Portable => "portable",
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Processor::Avx2 => "avx2",
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Processor::Avx512 => "avx512",
        }
    }
}
