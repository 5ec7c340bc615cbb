//! The unit's memory port: one bandwidth for all readers and the writer, and a latency for each request.
//!
//! A request's first byte moves after the latency; then the streams that are ready take turns, one beat of
//! the stated width a cycle. Requests of different streams overlap, so the latency is hidden as far as
//! modules ask ahead.

#[derive(Clone, Copy, Default)]
struct Stream {
    /// Bytes that have not moved yet.
    left: u64,
    ready_at: u64,
}

pub(super) struct Memory {
    latency: u64,
    width: u64,
    streams: Vec<Stream>,
    turn: usize,
    pub(super) busy_cycles: u64,
}

impl Memory {
    pub(super) fn new(streams: usize, latency_cycles: u32, bytes_per_cycle: u32) -> Memory {
        Memory {
            latency: u64::from(latency_cycles),
            width: u64::from(bytes_per_cycle),
            streams: vec![Stream::default(); streams],
            turn: 0,
            busy_cycles: 0,
        }
    }

    /// Asks for bytes to be moved. A stream has one request at a time.
    pub(super) fn request(&mut self, stream: usize, bytes: usize, now: u64) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.left += bytes as u64;
            stream.ready_at = now + self.latency;
        }
    }

    /// All that the stream asked for has moved.
    pub(super) fn is_done(&self, stream: usize) -> bool {
        self.streams.get(stream).is_none_or(|stream| stream.left == 0)
    }

    /// One cycle: one beat for the next stream that is ready.
    pub(super) fn step(&mut self, now: u64) {
        let count = self.streams.len();
        for offset in 0..count {
            let index = (self.turn + offset) % count;
            if let Some(stream) = self.streams.get_mut(index)
                && stream.left > 0
                && stream.ready_at <= now
            {
                stream.left = stream.left.saturating_sub(self.width);
                self.turn = index + 1;
                self.busy_cycles += 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_then_beats_in_turn() {
        let mut memory = Memory::new(2, 10, 8);
        memory.request(0, 16, 0);
        memory.request(1, 9, 0);
        let mut done = [0; 2];
        for now in 0..20 {
            memory.step(now);
            for (stream, at) in done.iter_mut().enumerate() {
                if *at == 0 && memory.is_done(stream) {
                    *at = now;
                }
            }
        }
        assert_eq!(done, [12, 13]);
        assert_eq!(memory.busy_cycles, 4);
    }
}
