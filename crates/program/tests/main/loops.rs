//! Random loops over ranges, with joins, searches of declared keys, writes to either side, and handlers: the
//! same outcome, error and state however they are run. Plainly, with what is resolved, and as machine code;
//! alone, and interleaved with a plan of lookups and a wait wherever one may be.

use std::fmt::Write as _;

use weft_base::{BatchId, Prng};
use weft_program::{BatchAccess, Program, Progress, ReadAccess, asm, begin, resume, run, verify};
use weft_store::{LookupPlan, PlannedLookups, Probe};
use weft_types::{RowLayout, SqlError, SqlType, Value};

use crate::fixture::{ACCOUNTS, Database, PAIRS};

fn accounts() -> RowLayout {
    RowLayout::new(&[
        SqlType::Int8,
        SqlType::Int4,
        SqlType::Varchar(Some(20)),
        SqlType::Text,
        SqlType::Float8,
    ])
}

/// Rows of both tables, so many as make no block of a join, one, or some and a part.
fn database(seed: u64) -> Database {
    let mut random = Prng::new(seed);
    let database = Database::new();
    let batch = BatchId(database.store.boundary().0 + 1);
    let writer = database.store.begin_batch(batch);
    let mut member = writer.member(0);
    let layout = accounts();
    let counts = [0, 1, 2, 15, 16, 17, 31, 32, 33, 40];
    let count = counts[random.below(10) as usize];
    for id in 0..count {
        let balance = match random.below(7) {
            6 => Value::Null,
            _ => Value::Int4(random.below(12) as i32),
        };
        let email = if random.chance(1, 9) {
            Value::Null
        } else {
            Value::Text(format!("{id}@there"))
        };
        let row = [Value::Int8(id), balance, Value::Null, email, Value::Null];
        member.insert(ACCOUNTS, &layout.encode(&row).unwrap()).unwrap();
    }
    let pairs = RowLayout::new(&[SqlType::Int4, SqlType::Int4, SqlType::Text]);
    for a in 0..3 {
        let count = counts[random.below(10) as usize];
        for b in 0..count as i32 {
            if random.chance(1, 6) {
                continue;
            }
            let v = match random.below(5) {
                0 => Value::Null,
                _ => Value::Text(format!("{}@there", random.below(40))),
            };
            let row = [Value::Int4(a), Value::Int4(b), v];
            member.insert(PAIRS, &pairs.encode(&row).unwrap()).unwrap();
        }
    }
    member.commit();
    writer.finish();
    database.store.publish(batch);
    database
}

const HEAD: &str = "\
.program catalog 3
.inputs
  i0 int4
  i1 int8
  i2 int4
  i3 int8
.consts
  c0 text 'x'
  c1 int4 '1'
  c2 int4 '2'
.tables
  t0 16384 (int8, int4, varchar(20), text, float8) x0 16385 unique ordered primary (0) \
     x1 16386 unique ordered (3)
  t1 16387 (int4, int4, text) x0 16388 unique ordered primary (0, 1)
.outputs
  s0 (int8, int4, text)
  s1 (int4, int4, text)
.access
ACCESS
.logic
";
const TAIL: &str = "\
  end
.commit
  commit
.abort
  abort
";

/// Writes a program.
struct Writer {
    random: Prng,
    text: String,
    label: usize,
    handlers: usize,
    /// Table of what is in each collect register.
    of: [Option<u8>; 8],
    reads_only: bool,
    in_try: usize,
}

impl Writer {
    fn label(&mut self) -> String {
        self.label += 1;
        format!("L{}", self.label)
    }
    fn line(&mut self, line: &str) {
        // What shows nothing inside a block is counted behind it: registers keep their values.
        if self.in_try > 0
            && ["emit", "count", "outrow", "setcol b0"]
                .iter()
                .any(|word| line.starts_with(word))
        {
            if let Some(register) = line.strip_prefix("count s1, ") {
                writeln!(self.text, "  add r9, r9, {register}").unwrap();
            }
            return;
        }
        writeln!(self.text, "  {line}").unwrap();
    }
    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }
    fn emit(&mut self, cp: u8) {
        let Some(table) = self.of[usize::from(cp)] else {
            return;
        };
        self.line(&format!("outrow b0, s{table}"));
        self.line(&format!("setcol b0.0, cp{cp}.0"));
        self.line(&format!("setcol b0.1, cp{cp}.1"));
        let text = if table == 0 { 3 } else { 2 };
        self.line(&format!("setcol b0.2, cp{cp}.{text}"));
        self.line(&format!("emit s{table}, b0"));
    }
    fn update(&mut self, cp: u8) {
        let Some(table) = self.of[usize::from(cp)] else {
            return;
        };
        self.line(&format!("copyrow b1, cp{cp}"));
        match (table, self.below(6)) {
            (0, 0) => self.line("setin b1.0, i3"),
            (0, 1) => self.line("setin b1.1, i2"),
            (0, 2) => self.line("setr b1.1, r9"),
            (0, 3) => self.line("cat b1.3, c0"),
            (0, 4) => self.line("setnull b1.1"),
            (0, _) => self.line("setk b1.3, c0"),
            (_, 0) => self.line("setr b1.1, r9"),
            (_, 1) => self.line("setk b1.0, c2"),
            (_, 2) => self.line("setnull b1.2"),
            (_, _) => self.line("cat b1.2, c0"),
        }
        self.line(&format!("update cp{cp}, b1"));
        self.line(&format!("ret r6, cp{cp}"));
        self.line("count s1, r6");
    }
    /// Search into a register, of a row by declared key, by join, or by register.
    fn search(&mut self, cp: u8, outer: Option<u8>) {
        let kind = self.below(6);
        let outer = outer.filter(|_| self.random.chance(3, 4));
        let table = match (kind, outer) {
            (0, _) => {
                self.line("key k2");
                self.line("keyin k2, i1");
                self.line(&format!("search cp{cp}, t0.x0, k2"));
                0
            }
            (1, _) => {
                self.line("key k2");
                self.line("keyin k2, i0");
                self.line("keyin k2, i2");
                self.line(&format!("search cp{cp}, t1.x0, k2"));
                1
            }
            (2, Some(outer)) if self.of[usize::from(outer)] == Some(0) => {
                self.line("key k2");
                self.line(&format!("keycol k2, cp{outer}.3"));
                self.line(&format!("search cp{cp}, t0.x1, k2"));
                0
            }
            (2 | 3, Some(outer)) if self.of[usize::from(outer)] == Some(1) => {
                self.line("key k2");
                self.line(&format!("keycol k2, cp{outer}.2"));
                self.line(&format!("search cp{cp}, t0.x1, k2"));
                0
            }
            (_, Some(outer)) => {
                self.line("key k1");
                match self.below(3) {
                    0 => self.line("keyin k1, i0"),
                    1 => self.line("keyk k1, c1"),
                    _ => self.line(&format!("keycol k1, cp{outer}.1")),
                }
                self.line(&format!("keycol k1, cp{outer}.1"));
                self.line(&format!("search cp{cp}, t1.x0, k1"));
                1
            }
            _ => {
                self.line("key k3");
                self.line("keyr k3, r9, int8");
                self.line(&format!("search cp{cp}, t0.x0, k3"));
                0
            }
        };
        self.of[usize::from(cp)] = Some(table);
        self.line(&format!("ret r1, cp{cp}"));
        self.line("add r9, r9, r1");
    }
    fn statements(&mut self, depth: usize, outer: Option<u8>) {
        let count = 2 + self.below(4);
        for at in 0..count {
            let cp = 1 + self.below(5) as u8;
            let kind = if at == 0 && outer.is_some() {
                0
            } else {
                self.below(12)
            };
            match kind {
                0..=3 => {
                    let cp = if outer == Some(cp) { 7 } else { cp };
                    self.search(cp, outer);
                    self.emit(cp);
                }
                4 => {
                    let cp = if self.random.chance(1, 3) {
                        outer.unwrap_or(cp)
                    } else {
                        cp
                    };
                    self.emit(cp);
                }
                5 | 6 if !self.reads_only => {
                    let cp = if self.random.chance(1, 3) {
                        outer.unwrap_or(cp)
                    } else {
                        cp
                    };
                    self.update(cp);
                }
                7 if !self.reads_only && self.random.chance(1, 2) => {
                    let cp = if self.random.chance(1, 3) {
                        outer.unwrap_or(cp)
                    } else {
                        cp
                    };
                    if self.of[usize::from(cp)].is_some() {
                        self.line(&format!("remove cp{cp}"));
                        self.line(&format!("ret r6, cp{cp}"));
                        self.line("count s0, r6");
                    }
                }
                8 if !self.reads_only => {
                    self.line("row b2, t1");
                    self.line("setk b2.0, c2");
                    self.line("setr b2.1, r9");
                    self.line("setk b2.2, c0");
                    let cp = if self.random.chance(1, 5) {
                        outer.unwrap_or(cp)
                    } else {
                        cp
                    };
                    self.line(&format!("insert cp{cp}, t1, b2"));
                    self.line(&format!("ret r6, cp{cp}"));
                    self.of[usize::from(cp)] = Some(1);
                }
                9 if self.handlers < 4 && depth < 3 => {
                    let (h, caught, behind) = (self.handlers, self.label(), self.label());
                    self.handlers += 1;
                    self.line(&format!("try h{h}, {caught}"));
                    self.in_try += 1;
                    self.statements(depth + 1, outer);
                    self.in_try -= 1;
                    self.line(&format!("endtry h{h}"));
                    self.line(&format!("jmp {behind}"));
                    writeln!(self.text, "{caught}:").unwrap();
                    self.line("count s0, r9");
                    writeln!(self.text, "{behind}:").unwrap();
                    let kept = self.of[usize::from(outer.unwrap_or(0))];
                    self.of = [None; 8];
                    if let Some(outer) = outer {
                        self.of[usize::from(outer)] = kept;
                    }
                }
                10 | 11 if depth < 2 => self.range(depth + 1),
                _ => self.line("count s1, r9"),
            }
        }
    }
    fn range(&mut self, depth: usize) {
        let cp = match self.below(3) {
            0 => 6,
            _ => depth as u8 % 2,
        };
        let status = 10 + depth;
        let table = self.below(2) as u8;
        self.line("key k0");
        if table == 1 && self.random.chance(2, 3) {
            let line = if self.random.chance(1, 2) {
                "keyin k0, i0"
            } else {
                "keyk k0, c1"
            };
            self.line(line);
        }
        let way = if self.random.chance(1, 3) {
            "reverse"
        } else {
            "forward"
        };
        let limit = match self.below(4) {
            0 => {
                let limit = [0, 1, 15, 16, 17, 33][self.below(6) as usize];
                self.line(&format!("ldi r8, {limit}"));
                "r8"
            }
            _ => "all",
        };
        self.line(&format!("scan cp{cp}, t{table}.x0, k0, k0, {way}, {limit}"));
        self.line(&format!("ret r{status}, cp{cp}"));
        self.of[usize::from(cp)] = Some(table);
        let (again, done) = (self.label(), self.label());
        writeln!(self.text, "{again}:").unwrap();
        self.line(&format!("bnt r{status}, {done}"));
        let before = self.of;
        self.statements(depth, Some(cp));
        self.line(&format!("next r{status}, cp{cp}"));
        self.line(&format!("jmp {again}"));
        writeln!(self.text, "{done}:").unwrap();
        for (of, before) in self.of.iter_mut().zip(before) {
            if *of != before {
                *of = None;
            }
        }
    }
}

fn program(seed: u64) -> (String, bool) {
    let mut random = Prng::new(seed);
    let reads_only = random.chance(1, 4);
    let mut writer = Writer {
        random,
        text: String::new(),
        label: 0,
        handlers: 0,
        of: [None; 8],
        reads_only,
        in_try: 0,
    };
    let mut access = String::from("  write_row t0 [i1]\n  write_row t1 [i0, i2]\n");
    if reads_only {
        access = access.replace("write", "read");
    }
    access.push_str(match (writer.below(8), reads_only) {
        (_, true) => "  read_table t0\n  read_table t1",
        (0, _) => "  write_range t1 [i0] [i0]\n  write_table t0",
        _ => "  write_table t0\n  write_table t1",
    });
    let mut text = HEAD.replace("ACCESS", &access);
    writer.line("ldi r9, 3");
    writer.search(1, None);
    writer.search(2, None);
    writer.range(0);
    writer.statements(1, None);
    text.push_str(&writer.text);
    text.push_str(TAIL);
    (text, reads_only)
}

/// A run with a plan of its lookups, that waits for each other search; counts the waits.
fn interleaved(
    database: &mut Database,
    program: &Program,
    inputs: &[u8],
    budget: u32,
    waits: &mut usize,
) -> Result<(), SqlError> {
    let batch = BatchId(database.store.boundary().0 + 1);
    let writer = database.store.begin_batch(batch);
    let mut member = writer.member(0);
    let (scratch, out) = (&mut database.scratch, &mut database.outcome);
    let mut plan = LookupPlan::new(writer.view());
    let result = (|| {
        begin(program, inputs, budget, scratch, out)?;
        scratch.plan_lookups(program, inputs, &mut plan);
        plan.finish();
        let mut probe: Option<Probe> = None;
        loop {
            let len = plan.len();
            let planned: PlannedLookups<'_, '_> = plan.part(0..len);
            let mut access = BatchAccess::interleaved(&mut member, &mut probe).with_planned(planned);
            match resume(program, inputs, &mut access, scratch, out)? {
                Progress::Done => return Ok(()),
                Progress::Waiting => {
                    *waits += 1;
                    if let Some(probe) = &mut probe {
                        while member.advance_probe(probe) {}
                    }
                }
            }
        }
    })();
    drop(plan);
    match result {
        Ok(()) => member.commit(),
        Err(_) => member.rollback(),
    }
    writer.finish();
    database.store.publish(batch);
    result
}

/// A run through a snapshot.
fn read(database: &mut Database, program: &Program, inputs: &[u8], budget: u32) -> Result<(), SqlError> {
    let snapshot = database.snapshot();
    let (scratch, outcome) = (&mut database.scratch, &mut database.outcome);
    run(
        program,
        inputs,
        &mut ReadAccess::new(&snapshot),
        budget,
        scratch,
        outcome,
    )
}

fn inputs(random: &mut Prng) -> [Value; 4] {
    let [first, second, third] = [3, 20, 20].map(|below| match random.chance(1, 12) {
        true => None,
        false => Some(random.below(below)),
    });
    [
        first.map_or(Value::Null, |value| Value::Int4(value as i32)),
        second.map_or(Value::Null, |value| Value::Int8(value as i64)),
        third.map_or(Value::Null, |value| Value::Int4(value as i32)),
        Value::Int8(random.below(60) as i64),
    ]
}

#[test]
fn loops_are_the_same_in_all_ways_of_running_them() {
    let catalog = Database::new().catalog();
    let (mut valid, mut finished, mut waits) = (0, 0, 0);
    for seed in 200..260 {
        let (text, reads_only) = program(seed);
        let resolved = asm::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        if verify(&resolved, &catalog).is_err() {
            continue;
        }
        valid += 1;
        let (plain, compiled) = (resolved.unresolved(), resolved.clone());
        compiled.compile();
        let mut random = Prng::new(seed ^ 77);
        for round in 0..2 {
            let values = inputs(&mut random);
            let inputs = resolved.encode_inputs(&values).unwrap();
            let budget = if round == 0 {
                20_000
            } else {
                random.below(400) as u32
            };
            let rows = random.next_u64();
            let mut one = database(rows);
            let expected = one.run(&plain, &inputs, budget);
            finished += u32::from(expected.is_ok());
            let digest = one.store.state_digest();
            for (name, way) in [("resolved", &resolved), ("compiled", &compiled)] {
                let compare = |found, other: &Database| {
                    assert_eq!(found, expected, "seed {seed} {name} {values:?}\n{text}");
                    if expected.is_ok() {
                        assert_eq!(
                            other.outcome, one.outcome,
                            "seed {seed} {name} {values:?}\n{text}"
                        );
                    }
                    if !reads_only {
                        assert_eq!(other.store.state_digest(), digest, "seed {seed} {name}\n{text}");
                    }
                };
                let mut other = database(rows);
                compare(other.run(way, &inputs, budget), &other);
                let mut other = database(rows);
                compare(interleaved(&mut other, way, &inputs, budget, &mut waits), &other);
                if reads_only {
                    let mut other = database(rows);
                    compare(read(&mut other, way, &inputs, budget), &other);
                }
            }
        }
    }
    assert!(
        valid > 15 && finished > 15 && waits > 500,
        "{valid} {finished} {waits}"
    );
}
