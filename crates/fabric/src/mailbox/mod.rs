//! Mailboxes: small messages by one put, with a notification, and no scan over all slots.
//!
//! Each receiver has, in one window, some slots of its own for every sender, so that senders never contend.
//! A sender numbers its messages; message n goes to slot n modulo slots. The receiver knows the flag that the
//! next message of each sender will have, takes the message when flag and CRC are right (`slot`), and tells
//! the sender how far it has come. A sender whose slots are full finds out before it writes: back-pressure.
//!
//! ```text
//! part of a receiver
//!   counts      one word for each group of 8 senders: how many messages they announced
//!   credits     one word for each rank: how many of my messages it has consumed
//!   slots       for each sender, as many as the receiver accepts of it
//! ```
//!
//! # Finding messages
//!
//! A receiver with at most [`GROUP`] senders looks at their next slots: these lines are in its cache until
//! somebody writes them. One with more is told by a remote atomic add on the count of the sender's group,
//! after the message was flushed, and looks at the slots of groups whose count has changed. Eight counts are
//! one cache line: a poll without a message reads one line for 64 senders. The receiver never writes a count.
//!
//! # Sizes
//!
//! The document's rules: a server accepts one message of each agent, as an agent has one request open; an
//! agent accepts one answer. Here each rank states what it accepts of each other: [`MailboxSpec`]. One slot
//! for each request that a sender may have open is enough; more let a sender run ahead. When half of a
//! sender's slots have been read, the receiver owes it credit, which it stores at the sender after the next
//! message that it sends, or in the next poll: an answer leaves first. When all slots have been read (with
//! one slot, always) it does so at once, so that what was received has always made room. Credit does not ride
//! on answers: a sender that waits for room does not read its mailbox.
//!
//! # Damage
//!
//! A slot that holds the flag of the next message, and for a quarter of the receiver's timeout no message
//! that fits it, was damaged. That message is lost: the receiver is told so once ([`Error::Damaged`]), and
//! goes on with the sender's next one. Other senders are not concerned.
//!
//! # Deaths
//!
//! Flags carry the incarnations of both ranks. When one returns, both begin again at message 1. What a
//! rank sent before it died may still be taken, and says of which life it is; what was sent to it is lost. A
//! sender learns from `presence` that a rank was away; messages to a rank that died may be lost, as its
//! memory was.
//!
//! Flags have eight bits of each incarnation: a slot that has held a message since 256 lives of its sender
//! ago could be taken for one of now. Any later message in the slot, or a return of the receiver, removes it.
//!
//! Source: Barthels, section 5.2.3 (notified puts into slots by sender). The sequence numbers, the CRC, the
//! credits and the counts by group are ours: MPI has no notified put.

mod slot;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::Error;
use crate::rank::{Rank, Wait};
use crate::window::{Window, WindowSpec};
use slot::{HEAD_BYTES, Head, encode, flag, sequence_of, slot_bytes, tag as tag_of};

/// Senders whose slots are looked at together.
pub const GROUP: usize = 8;
const LINE_BYTES: usize = 64;
/// Part of a timeout after which a torn message is not on its way any more, but damaged: whoever waits for an
/// answer to it for a whole timeout is told before that.
const DAMAGED_AFTER: u32 = 4;

/// What a rank wants of a mailbox.
#[derive(Debug, Clone)]
pub struct MailboxSpec<'a> {
    /// A name, for errors; the same on all ranks.
    pub name: &'a str,
    /// The longest message in bytes; the same on all ranks. 48 fit into one cache line.
    pub payload_bytes_max: u32,
    /// Slots for each sender, by rank; 0 for one that may not send here, missing ones too.
    pub accepts: Vec<u16>,
    /// A word that must be the same on all ranks.
    pub config: u64,
}

impl<'a> MailboxSpec<'a> {
    /// The same number of slots for each of so many ranks.
    #[must_use]
    pub fn uniform(name: &'a str, payload_bytes_max: u32, ranks: u32, slots: u16) -> Self {
        Self {
            name,
            payload_bytes_max,
            accepts: vec![slots; ranks as usize],
            config: 0,
        }
    }
}

/// A message that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Who sent it.
    pub sender: u32,
    /// Which life of the sender sent it.
    pub incarnation: u32,
}

/// One rank's mailbox, with the way to those of the others.
pub struct Mailbox {
    rank: Rank,
    window: Window,
    payload_bytes_max: usize,
    slot_bytes: usize,
    layout: MailboxLayout,
    outgoing: Vec<Mutex<Outgoing>>,
    receiving: Mutex<Receiving>,
    /// Some credit is due. A hint: whoever sees it looks under the latch.
    owes: AtomicBool,
    #[cfg(test)]
    accepts_torn: bool,
}

#[derive(Debug, Clone, Copy)]
struct MailboxLayout {
    rank_count: usize,
}

impl MailboxLayout {
    const fn count(sender: u32) -> usize {
        sender as usize / GROUP * 8
    }

    fn credit(self, receiver: u32) -> usize {
        let counts = (self.rank_count.div_ceil(GROUP) * 8).next_multiple_of(LINE_BYTES);
        counts + receiver as usize * 8
    }

    fn slots(self) -> usize {
        (self.credit(0) + self.rank_count * 8).next_multiple_of(LINE_BYTES)
    }
}

/// The way to one receiver.
#[derive(Debug)]
struct Outgoing {
    /// Where this rank's slots are in the receiver's part.
    start: usize,
    slots: u64,
    is_counted: bool,
    tag: u64,
    /// A planted fault: the next message is damaged.
    damages_next: bool,
    sent: u64,
    /// Sequence modulo slots, of the next message.
    next_slot: u64,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Receiving {
    senders: Vec<Incoming>,
    groups: Vec<GroupState>,
    is_counted: bool,
    /// Senders whose credit is due.
    owed: Vec<u32>,
    /// Where the next look begins, so that no sender is served twice before another once.
    cursor: usize,
}

#[derive(Debug)]
struct Incoming {
    start: usize,
    slots: u64,
    incarnation: u32,
    taken: u64,
    next_slot: u64,
    /// The last message that the sender was told of.
    told: u64,
    torn_since_ns: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct GroupState {
    seen: u64,
    /// Something may be there that no count will announce again.
    is_open: bool,
}

/// What is in a sender's next slot.
enum Look {
    Message,
    Torn,
    /// The message is lost; the next one is awaited.
    Damaged,
    Nothing,
}

impl Mailbox {
    /// Makes the mailboxes of all ranks. Collective; a rank that has returned finds them again.
    ///
    /// # Errors
    ///
    /// Those of [`Rank::create_window`]; `Misuse` for more entries in `accepts` than ranks.
    pub fn open(rank: &Rank, spec: &MailboxSpec<'_>) -> Result<Self, Error> {
        let count = rank.count();
        if spec.accepts.len() > count as usize {
            return Err(Error::misuse("a mailbox accepts from more ranks than there are"));
        }
        let layout = MailboxLayout {
            rank_count: count as usize,
        };
        let payload_bytes_max = spec.payload_bytes_max as usize;
        let slot_bytes = slot_bytes(payload_bytes_max);
        let accepts = |sender: u32| spec.accepts.get(sender as usize).copied().unwrap_or(0);
        let mut start = layout.slots();
        let mut senders = Vec::new();
        for sender in 0..count {
            let slots = u64::from(accepts(sender));
            senders.push(Incoming {
                start,
                slots,
                incarnation: 0,
                taken: 0,
                next_slot: 0,
                told: 0,
                torn_since_ns: None,
            });
            start += slot_bytes * usize::from(accepts(sender));
        }
        let is_counted = senders.iter().filter(|sender| sender.slots > 0).count() > GROUP;
        // A part ends with what the senders must know: they read it once for each life of the receiver.
        let directory = start.next_multiple_of(LINE_BYTES);
        let window = rank.create_window(&WindowSpec {
            name: spec.name,
            bytes: (directory + count as usize * 16) as u64,
            is_uniform: false,
            config: spec.config ^ u64::from(spec.payload_bytes_max).rotate_left(32),
        })?;
        let mailbox = Self {
            payload_bytes_max,
            slot_bytes,
            layout,
            outgoing: (0..count).map(|_| Mutex::new(Outgoing::unknown())).collect(),
            receiving: Mutex::new(Receiving {
                groups: vec![GroupState::default(); senders.len().div_ceil(GROUP)],
                senders,
                is_counted,
                owed: Vec::new(),
                cursor: 0,
            }),
            owes: AtomicBool::new(false),
            rank: rank.clone(),
            window,
            #[cfg(test)]
            accepts_torn: false,
        };
        mailbox.publish(directory)?;
        if !mailbox.window.is_known() {
            rank.barrier()?;
        }
        Ok(mailbox)
    }

    /// Writes, at the end of this rank's part, where each sender's slots are: two words for each. The first
    /// says that both are there, and is written last.
    fn publish(&self, directory: usize) -> Result<(), Error> {
        let receiving = self.receiving.lock();
        for (sender, incoming) in receiving.senders.iter().enumerate() {
            let at = (directory + (sender * 2) * 8) as u64;
            self.window
                .local_write(at + 8, &(incoming.start as u64).to_ne_bytes())?;
            let word = incoming.slots | u64::from(receiving.is_counted) << 32 | KNOWN;
            self.window.local_write(at, &word.to_ne_bytes())?;
        }
        Ok(())
    }

    /// The longest message.
    #[must_use]
    pub fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    /// The rank whose mailbox this is.
    #[must_use]
    pub fn rank(&self) -> &Rank {
        &self.rank
    }

    /// Sends a message unless the receiver's slots for this rank are full. `true` says that it is in the
    /// receiver's memory, `false` that there was no room.
    ///
    /// # Errors
    ///
    /// `MessageTooLong`, `NoSuchRank`, `NotAccepted`, `RankDead`; those of the form.
    pub fn try_send(&self, target: u32, payload: &[u8]) -> Result<bool, Error> {
        if payload.len() > self.payload_bytes_max {
            return Err(Error::MessageTooLong {
                length: payload.len(),
                length_max: self.payload_bytes_max,
            });
        }
        let presence = self.rank.presence(target)?;
        if !presence.alive {
            return Err(Error::RankDead {
                rank: target,
                during: "sending a message",
            });
        }
        let Some(outgoing) = self.outgoing.get(target as usize) else {
            return Ok(false);
        };
        let mut outgoing = outgoing.lock();
        let tag = tag_of(self.rank.incarnation(), presence.incarnation);
        if (outgoing.slots == 0 || tag != outgoing.tag) && !self.learn(target, tag, &mut outgoing)? {
            return Ok(false);
        }
        if outgoing.sent.saturating_sub(self.credit_of(target, tag)) >= outgoing.slots {
            self.settle_owed()?;
            return Ok(false);
        }
        let sequence = outgoing.sent + 1;
        let at = outgoing.start + outgoing.next_slot as usize * self.slot_bytes;
        encode(flag(tag, sequence), payload, &mut outgoing.bytes);
        if std::mem::take(&mut outgoing.damages_next)
            && let Some(byte) = outgoing.bytes.last_mut()
        {
            *byte ^= 0x55;
        }
        // Counted as sent before it is: after an error nobody knows whether the slot was written.
        outgoing.sent = sequence;
        outgoing.next_slot = slot_after(outgoing.next_slot, outgoing.slots);
        let raw = self.window.raw();
        raw.put_flagged(target, at, &outgoing.bytes)?;
        if outgoing.is_counted {
            raw.fetch_add(target, MailboxLayout::count(self.rank.number()), 1)?;
        }
        drop(outgoing);
        self.settle_owed()?;
        Ok(true)
    }

    /// A planted fault, for tests: the next message to that rank is damaged on its way.
    pub fn damage_next(&self, target: u32) {
        if let Some(outgoing) = self.outgoing.get(target as usize) {
            outgoing.lock().damages_next = true;
        }
    }

    /// Sends a message, waiting for room.
    ///
    /// # Errors
    ///
    /// Those of [`Self::try_send`]; `Deadline`.
    pub fn send(&self, target: u32, payload: &[u8]) -> Result<(), Error> {
        self.rank.wait_for("room in a mailbox", Some(target), || {
            Ok(self.try_send(target, payload)?.then_some(()))
        })
    }

    /// Takes the next message, if there is one, into `payload`, whose old content goes. Messages of one
    /// sender come in the order in which they were sent; senders take turns.
    ///
    /// # Errors
    ///
    /// `Damaged` if a slot has held bytes for long that are no message: that message of its sender is lost,
    /// and the next calls go on; those of the form.
    pub fn poll(&self, payload: &mut Vec<u8>) -> Result<Option<Received>, Error> {
        let mut receiving = self.receiving.lock();
        let receiving = &mut *receiving;
        self.settle(receiving)?;
        let senders = receiving.senders.len();
        let groups = receiving.groups.len();
        let first_group = receiving.cursor / GROUP;
        for step in 0..=groups {
            // The first group is looked at from the cursor on, and last of all before it.
            let group = (first_group + step) % groups.max(1);
            let (low, high) = (group * GROUP, (group * GROUP + GROUP).min(senders));
            let range = match step {
                0 => receiving.cursor.min(high)..high,
                _ if step == groups => low..receiving.cursor.clamp(low, high),
                _ => low..high,
            };
            if range.is_empty() {
                continue;
            }
            let Some(state) = receiving.groups.get_mut(group) else {
                continue;
            };
            let count = self.window.raw().local_load(group * 8);
            if receiving.is_counted && count == state.seen && !state.is_open {
                continue;
            }
            // Until a look at the whole group has found nothing.
            state.is_open = true;
            let mut found_torn = false;
            for sender in range.clone() {
                let Some(incoming) = receiving.senders.get_mut(sender) else {
                    continue;
                };
                match self.look(sender as u32, incoming, payload)? {
                    Look::Message => {
                        let untold = incoming.taken - incoming.told;
                        if untold >= incoming.slots {
                            self.give_credit(sender as u32, incoming)?;
                        } else if untold == incoming.slots.div_ceil(2) {
                            receiving.owed.push(sender as u32);
                            self.owes.store(true, Ordering::Relaxed);
                        }
                        receiving.cursor = (sender + 1) % senders;
                        return Ok(Some(Received {
                            sender: sender as u32,
                            incarnation: incoming.incarnation,
                        }));
                    }
                    Look::Damaged => {
                        self.give_credit(sender as u32, incoming)?;
                        receiving.cursor = (sender + 1) % senders;
                        return Err(Error::Damaged {
                            rank: sender as u32,
                            what: "a message that stayed torn",
                        });
                    }
                    Look::Torn => found_torn = true,
                    Look::Nothing => {}
                }
            }
            if range == (low..high) {
                state.is_open = found_torn;
                state.seen = count;
            }
        }
        // From the beginning of a group on, so that the next look covers it as a whole.
        receiving.cursor = first_group * GROUP;
        Ok(None)
    }

    /// Waits for a message, at most the rank's timeout.
    ///
    /// # Errors
    ///
    /// Those of [`Self::poll`]; `Deadline`.
    pub fn receive(&self, payload: &mut Vec<u8>) -> Result<Received, Error> {
        self.receive_within(self.rank.timeout(), None, payload)
    }

    /// Waits for a message of anybody; gives up when `needed` is dead or time is over.
    ///
    /// # Errors
    ///
    /// Those of [`Self::poll`]; `RankDead`, `Deadline`.
    pub fn receive_within(
        &self,
        timeout: Duration,
        needed: Option<u32>,
        payload: &mut Vec<u8>,
    ) -> Result<Received, Error> {
        let mut wait = Wait::default();
        loop {
            if let Some(received) = self.poll(payload)? {
                return Ok(received);
            }
            wait.turn(&self.rank, timeout, "a message", needed)?;
        }
    }

    /// Closes the mailboxes of all ranks. Collective.
    ///
    /// # Errors
    ///
    /// Those of [`Window::close`].
    pub fn close(self) -> Result<(), Error> {
        let window = self.window.clone();
        drop(self);
        window.close()
    }

    /// Reads, once for each life of the receiver, where this rank's slots are; begins again at message 1.
    /// False while a receiver that has returned has not made its mailbox again.
    fn learn(&self, target: u32, tag: u64, outgoing: &mut Outgoing) -> Result<bool, Error> {
        let directory_bytes = u64::from(self.rank.count()) * 16;
        let directory = self.window.bytes_of(target).saturating_sub(directory_bytes);
        let at = directory + u64::from(self.rank.number()) * 16;
        let word = self.window.load(target, at)?;
        if word & KNOWN == 0 {
            return Ok(false);
        }
        let start = self.window.load(target, at + 8)?;
        let slots = word & 0xffff;
        let end = start.checked_add(slots * self.slot_bytes as u64);
        if end.is_none_or(|end| end > directory) || start % 8 != 0 {
            return Err(Error::Damaged {
                rank: target,
                what: "the description of its mailbox",
            });
        }
        if slots == 0 {
            return Err(Error::NotAccepted { rank: target });
        }
        *outgoing = Outgoing {
            start: usize::try_from(start).unwrap_or(usize::MAX),
            slots,
            is_counted: word >> 32 & 1 == 1,
            tag,
            damages_next: outgoing.damages_next,
            sent: 0,
            next_slot: 0,
            bytes: std::mem::take(&mut outgoing.bytes),
        };
        Ok(true)
    }

    /// How many messages to that rank it is known to have consumed in these lives.
    fn credit_of(&self, target: u32, tag: u64) -> u64 {
        let credit = self.window.raw().local_load(self.layout.credit(target));
        sequence_of(credit, tag)
    }

    /// Takes the sender's next message if it is there whole.
    fn look(&self, sender: u32, incoming: &mut Incoming, payload: &mut Vec<u8>) -> Result<Look, Error> {
        if incoming.slots == 0 {
            return Ok(Look::Nothing);
        }
        let raw = self.window.raw();
        let mut tag = tag_of(incoming.incarnation, self.rank.incarnation());
        let mut at = incoming.start + incoming.next_slot as usize * self.slot_bytes;
        let seen = raw.local_load(at);
        if seen != flag(tag, incoming.taken + 1) {
            let incarnation = self.rank.inner.transport.presence(sender).incarnation;
            if incarnation == incoming.incarnation {
                return Ok(Look::Nothing);
            }
            // The sender has returned, and begins again at message 1.
            incoming.begin_again(incarnation);
            tag = tag_of(incarnation, self.rank.incarnation());
            at = incoming.start;
            if raw.local_load(at) != flag(tag, 1) {
                return Ok(Look::Nothing);
            }
        }
        let expected = flag(tag, incoming.taken + 1);
        let head = Head::decode(raw.local_load(at + 8));
        if head.length <= self.payload_bytes_max {
            payload.resize(head.length, 0);
            raw.local_read(at + HEAD_BYTES, payload);
            let fits = head.fits(expected, payload);
            #[cfg(test)]
            let fits = fits || self.accepts_torn;
            if fits {
                incoming.go_on();
                return Ok(Look::Message);
            }
        }
        let incarnation = self.rank.inner.transport.presence(sender).incarnation;
        if incarnation != incoming.incarnation {
            // It died in the middle of a put, which nobody will finish, and has returned.
            incoming.begin_again(incarnation);
            return Ok(Look::Torn);
        }
        let now_ns = self.rank.now_ns();
        let since_ns = *incoming.torn_since_ns.get_or_insert(now_ns);
        let damaged_after = self.rank.timeout() / DAMAGED_AFTER;
        let is_old = u128::from(now_ns.saturating_sub(since_ns)) > damaged_after.as_nanos();
        // Of a dead sender it is no fault that its last message stays torn.
        if is_old && self.rank.inner.transport.probe(sender).alive {
            incoming.go_on();
            return Ok(Look::Damaged);
        }
        Ok(Look::Torn)
    }

    fn settle_owed(&self) -> Result<(), Error> {
        if self.owes.load(Ordering::Relaxed) {
            self.settle(&mut self.receiving.lock())
        } else {
            Ok(())
        }
    }

    /// Gives all credit that is due.
    fn settle(&self, receiving: &mut Receiving) -> Result<(), Error> {
        while let Some(sender) = receiving.owed.pop() {
            if let Some(incoming) = receiving.senders.get_mut(sender as usize) {
                self.give_credit(sender, incoming)?;
            }
        }
        self.owes.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Tells the sender how far this rank has come.
    fn give_credit(&self, sender: u32, incoming: &mut Incoming) -> Result<(), Error> {
        incoming.told = incoming.taken;
        let credit = self.layout.credit(self.rank.number());
        let word = flag(
            tag_of(incoming.incarnation, self.rank.incarnation()),
            incoming.taken,
        );
        match self.window.raw().store_soon(sender, credit, word) {
            // Its messages were sent before it died.
            Ok(()) | Err(Error::RankDead { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Incoming {
    /// The next message is awaited.
    fn go_on(&mut self) {
        self.taken += 1;
        self.next_slot = slot_after(self.next_slot, self.slots);
        self.torn_since_ns = None;
    }

    fn begin_again(&mut self, incarnation: u32) {
        self.incarnation = incarnation;
        self.taken = 0;
        self.told = 0;
        self.next_slot = 0;
        self.torn_since_ns = None;
    }
}

const fn slot_after(slot: u64, slots: u64) -> u64 {
    if slot + 1 < slots { slot + 1 } else { 0 }
}

/// In a word of the directory: it has been written.
const KNOWN: u64 = 1 << 33;

impl Outgoing {
    /// Nothing is known of the receiver yet.
    const fn unknown() -> Self {
        Self {
            start: 0,
            slots: 0,
            is_counted: false,
            tag: 0,
            damages_next: false,
            sent: 0,
            next_slot: 0,
            bytes: Vec::new(),
        }
    }
}
