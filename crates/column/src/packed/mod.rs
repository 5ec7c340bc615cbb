//! Scans of packed codes (layout: `weft_ops::packed`), 64 codes at a time.
//!
//! ```text
//! codes 64k .. 64k+63  =  8 * width bytes from byte 8 * width * k on  ->  word k of the bitmap
//! ```
//!
//! So every 64 codes begin at a byte, and each form of a scan (module) computes one word from a *window*: so
//! many bytes from there on that the widest codes and a vector's load behind them fit in. Near the end of the
//! codes a copy with zeros behind it is the window, so nothing outside of the slice is read.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
mod rows;

pub use rows::row_ids;

use std::sync::OnceLock;

use weft_ops::packed::{Totals, WIDTH_MAX, code_max, packed_len};

/// Bytes of a window: 64 codes of the widest kind, and a vector.
const WINDOW: usize = 64 * WIDTH_MAX as usize / 8 + 64;

/// Packed codes of one column.
#[derive(Debug, Clone, Copy)]
pub struct Codes<'a> {
    packed: &'a [u8],
    width: u32,
    count: usize,
}

/// Bytes or a width that are none of so many codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotPacked;

/// A form of the scans that this processor has. All give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Form(Instructions);

/// What a form is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Instructions {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// F, BW and VBMI: Ice Lake, Zen 4 and later.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// A predicate on codes.
#[derive(Debug, Clone, Copy)]
pub enum Predicate<'a> {
    /// Codes of this range, both ends included.
    Range(u32, u32),
    /// Codes of a set: a bit for each, as many as there are words for.
    Set(&'a [u64]),
}

impl Form {
    /// The one that every processor has.
    pub const PORTABLE: Form = Form(Instructions::Portable);

    /// The forms that this processor has, the fastest last.
    #[must_use]
    pub fn here() -> Vec<Form> {
        let mut forms = vec![Form::PORTABLE];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                forms.push(Form(Instructions::Avx2));
                if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vbmi") {
                    forms.push(Form(Instructions::Avx512));
                }
            }
        }
        forms
    }

    /// The fastest form that this processor has.
    #[must_use]
    pub fn best() -> Form {
        static BEST: OnceLock<Form> = OnceLock::new();
        *BEST.get_or_init(|| Form::here().pop().unwrap_or(Form::PORTABLE))
    }

    /// Its name: `portable`, `avx2` or `avx512`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Instructions::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => "avx512",
        }
    }
}

impl<'a> Codes<'a> {
    /// So many codes of this width.
    ///
    /// # Errors
    /// The width is above [`WIDTH_MAX`], or there are fewer bytes.
    pub fn new(packed: &'a [u8], width: u32, count: usize) -> Result<Codes<'a>, NotPacked> {
        if width > WIDTH_MAX || count > u32::MAX as usize || packed.len() < packed_len(count, width) {
            return Err(NotPacked);
        }
        Ok(Codes { packed, width, count })
    }

    /// How many codes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bits of a code.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// The bytes that have them, and no others.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        let bytes = packed_len(self.count, self.width);
        self.packed.get(..bytes).unwrap_or(self.packed)
    }

    /// One code, without looking at others; zero behind the last.
    #[must_use]
    pub fn get(&self, at: usize) -> u32 {
        weft_ops::packed::code_at(self.packed, self.width, at)
    }

    /// The codes from code `64 * group` on; anything behind the last.
    pub fn unpack(&self, form: Form, group: usize, out: &mut [[u32; 64]]) {
        let rest = self
            .packed
            .get(8 * self.width as usize * group..)
            .unwrap_or_default();
        let codes = Codes {
            packed: rest,
            ..*self
        };
        match form.0 {
            _ if self.width == 0 => out.fill([0; 64]),
            Instructions::Portable => portable::unpack(codes, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: there are such forms only where the processor has AVX2.
            Instructions::Avx2 | Instructions::Avx512 => unsafe { avx2::unpack(codes, out) },
        }
    }

    /// A bit for each code, the first in the lowest: whether the predicate holds. Bits behind the last code
    /// are zero. `out` is replaced.
    pub fn matching(&self, form: Form, predicate: Predicate<'_>, out: &mut Vec<u64>) {
        out.clear();
        out.resize(self.count.div_ceil(64), 0);
        match predicate {
            Predicate::Range(low, high) => self.in_range(form, low, high, out),
            Predicate::Set(set) => self.in_set(form, set, out),
        }
        let rest = self.count % 64;
        if rest > 0
            && let Some(last) = out.last_mut()
        {
            *last &= (1 << rest) - 1;
        }
    }

    /// The totals of the codes whose bit is set, the first in the lowest; bits that are missing are not.
    #[must_use]
    pub fn totals(&self, form: Form, selection: &[u64]) -> Totals {
        match form.0 {
            Instructions::Portable => portable::totals(*self, selection),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: there is such a form only where the processor has it.
            Instructions::Avx2 => unsafe { avx2::totals(*self, selection) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Instructions::Avx512 => unsafe { avx512::totals(*self, selection) },
        }
    }

    fn in_range(&self, form: Form, low: u32, high: u32, out: &mut [u64]) {
        let high = high.min(code_max(self.width));
        if low > high {
            return;
        }
        if low == 0 && high == code_max(self.width) {
            return out.fill(u64::MAX);
        }
        match form.0 {
            Instructions::Portable => portable::in_range(*self, low, high, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: there is such a form only where the processor has it.
            Instructions::Avx2 => unsafe { avx2::in_range(*self, low, high, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Instructions::Avx512 => unsafe { avx512::in_range(*self, low, high, out) },
        }
    }

    fn in_set(&self, form: Form, set: &[u64], out: &mut [u64]) {
        if self.width == 0 {
            let has_zero = set.first().is_some_and(|word| word & 1 == 1);
            return out.fill(if has_zero { u64::MAX } else { 0 });
        }
        match form.0 {
            Instructions::Portable => portable::in_set(*self, set, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: there is such a form only where the processor has it.
            Instructions::Avx2 => unsafe { avx2::in_set(*self, set, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Instructions::Avx512 => unsafe { avx512::in_set(*self, set, out) },
        }
    }

    /// Fills every word from its window.
    #[inline(always)]
    fn each_window(self, out: &mut [u64], mut word: impl FnMut(&[u8; WINDOW]) -> u64) {
        self.fill_each(out, |window, out| *out = word(window));
    }

    /// Visits each window with selected codes, and the bits of these.
    #[inline(always)]
    fn each_selected(self, selection: &[u64], mut visit: impl FnMut(&[u8; WINDOW], u64)) {
        let stride = 8 * self.width as usize;
        let (mut rest, mut left) = (self.packed, self.count);
        for word in selection {
            let bits = match left {
                0 => return,
                left if left < 64 => word & ((1 << left) - 1),
                _ => *word,
            };
            if bits != 0 {
                match rest.first_chunk() {
                    Some(window) => visit(window, bits),
                    None => visit(&padded(rest), bits),
                }
            }
            rest = rest.get(stride..).unwrap_or_default();
            left = left.saturating_sub(64);
        }
    }

    /// Fills whatever comes of each window.
    #[inline(always)]
    fn fill_each<T>(self, out: &mut [T], mut fill: impl FnMut(&[u8; WINDOW], &mut T)) {
        let stride = 8 * self.width as usize;
        let mut rest = self.packed;
        for out in out {
            match rest.first_chunk() {
                Some(window) => fill(window, out),
                None => fill(&padded(rest), out),
            }
            rest = rest.get(stride..).unwrap_or_default();
        }
    }
}

/// A window with zeros behind the last bytes.
#[cold]
fn padded(rest: &[u8]) -> [u8; WINDOW] {
    let mut window = [0; WINDOW];
    if let Some(place) = window.get_mut(..rest.len()) {
        place.copy_from_slice(rest);
    }
    window
}
