//! What lies between this process and a unit: the time that transfers take.

/// A link, as a model: each transfer costs a fixed time, and a time for each byte. All times are simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Nanoseconds of a transfer of nothing: descriptor, doorbell, interrupt.
    pub transfer_ns: u64,
    /// Bytes in a microsecond.
    pub bytes_per_us: u64,
}

impl Link {
    /// PCI Express 3, eight lanes: 7.9 GB/s in each direction, of which about 7 are data; a microsecond for a
    /// small transfer.
    pub const PCIE_3_X8: Link = Link {
        transfer_ns: 1_000,
        bytes_per_us: 7_000,
    };
    /// PCI Express 5, sixteen lanes: 63 GB/s, about 55 of data; 700 ns.
    pub const PCIE_5_X16: Link = Link {
        transfer_ns: 700,
        bytes_per_us: 55_000,
    };
    /// CXL memory on such lanes, read and written by the processor itself: 250 ns.
    pub const CXL: Link = Link {
        transfer_ns: 250,
        bytes_per_us: 50_000,
    };

    /// Nanoseconds of a transfer of so many bytes.
    #[must_use]
    pub const fn ns(&self, bytes: u64) -> u64 {
        let per_us = if self.bytes_per_us == 0 {
            1
        } else {
            self.bytes_per_us
        };
        self.transfer_ns
            .saturating_add(bytes.saturating_mul(1_000).div_ceil(per_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_has_a_fixed_part_and_a_part_for_each_byte() {
        let link = Link {
            transfer_ns: 500,
            bytes_per_us: 1_000,
        };
        assert_eq!([link.ns(0), link.ns(1), link.ns(4_000)], [500, 501, 4_500]);
        assert_eq!(link.ns(u64::MAX), u64::MAX / 1_000 + 1 + 500);
    }
}
