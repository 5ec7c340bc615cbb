//! Packed columns, and scans that compare codes without unpacking them.
//!
//! Bytes in, bytes out: nothing here knows tables, transactions or files. A predicate on values has become a
//! range or a set of codes before it comes here; what leaves is a bitmap or row ids (DBA 2.2: range search
//! and in-list search, the row ids that satisfy them).
//!
//! [`packed`] has the scans, in a portable form and for AVX2 and AVX-512, chosen at run time and equal bit
//! for bit to the golden model, `weft_ops::packed`.

pub mod packed;
