//! PostgreSQL's hashes of texts, which clients use to make numbers of names: Bob Jenkins' lookup3 with other
//! beginnings (`hash_bytes` and `hash_bytes_extended`, on a little-endian machine).

use weft_types::Value;
use weft_types::interrupt::Pace;

use super::super::shape::{Arguments, Computed, INT8, TEXT, TO_INT4, TO_INT8, define, int, text};
use crate::context::Context;
use crate::table::Entry;

/// The entries.
pub static ENTRIES: &[Entry] = &[
    define("hashtext", &[TEXT], TO_INT4, |_, arguments| {
        let (_, hash) = words(text(arguments, 0)?.as_bytes(), 0)?;
        Ok(Value::Int4(hash as i32))
    }),
    define("hashtextextended", &[TEXT, INT8], TO_INT8, extended),
];

fn extended(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (high, low) = words(text(arguments, 0)?.as_bytes(), int(arguments, 1)? as u64)?;
    Ok(Value::Int8((u64::from(high) << 32 | u64::from(low)) as i64))
}

/// The last two words of the state; the hash of 32 bits is the second.
fn words(bytes: &[u8], seed: u64) -> Result<(u32, u32), weft_types::SqlError> {
    let start = 0x9e37_79b9_u32
        .wrapping_add(bytes.len() as u32)
        .wrapping_add(3_923_095);
    let mut state = [start; 3];
    if seed != 0 {
        add(&mut state, [(seed >> 32) as u32, seed as u32, 0]);
        mix(&mut state);
    }
    let (blocks, rest) = bytes.as_chunks::<12>();
    let mut pace = Pace::default();
    for block in blocks {
        pace.step(1)?;
        add(&mut state, loaded(block));
        mix(&mut state);
    }
    // The lowest byte of the third word belongs to the length.
    let mut last = [0; 12];
    for (at, byte) in rest.iter().enumerate() {
        if let Some(to) = last.get_mut(at + usize::from(at >= 8)) {
            *to = *byte;
        }
    }
    add(&mut state, loaded(&last));
    finish(&mut state);
    let [_, b, c] = state;
    Ok((b, c))
}

fn loaded(block: &[u8; 12]) -> [u32; 3] {
    let (words, _) = block.as_chunks::<4>();
    let mut out = [0; 3];
    for (to, word) in out.iter_mut().zip(words) {
        *to = u32::from_le_bytes(*word);
    }
    out
}

fn add(state: &mut [u32; 3], words: [u32; 3]) {
    for (to, word) in state.iter_mut().zip(words) {
        *to = to.wrapping_add(word);
    }
}

fn mix(state: &mut [u32; 3]) {
    let [mut a, mut b, mut c] = *state;
    let step = |x: &mut u32, y: &mut u32, z: &mut u32, turn: u32| {
        *x = x.wrapping_sub(*z) ^ z.rotate_left(turn);
        *z = z.wrapping_add(*y);
    };
    step(&mut a, &mut b, &mut c, 4);
    step(&mut b, &mut c, &mut a, 6);
    step(&mut c, &mut a, &mut b, 8);
    step(&mut a, &mut b, &mut c, 16);
    step(&mut b, &mut c, &mut a, 19);
    step(&mut c, &mut a, &mut b, 4);
    *state = [a, b, c];
}

fn finish(state: &mut [u32; 3]) {
    let [mut a, mut b, mut c] = *state;
    let step = |x: &mut u32, y: u32, turn: u32| *x = (*x ^ y).wrapping_sub(y.rotate_left(turn));
    step(&mut c, b, 14);
    step(&mut a, c, 11);
    step(&mut b, a, 25);
    step(&mut c, b, 16);
    step(&mut a, c, 4);
    step(&mut b, a, 14);
    step(&mut c, b, 24);
    *state = [a, b, c];
}
