//! Many random statements, each in every way, on both servers.

use std::time::{Duration, Instant};

use crate::answer::{Answer, Verdict};
use crate::catalog::Catalog;
use crate::generate::{Generator, Mix, Statement};
use crate::minimise::minimise;
use crate::pair::{Pair, Way};
use crate::report::Report;
use crate::tree::Node;

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The generator's seed.
    pub seed: u64,
    /// Statements to make.
    pub statements: usize,
    /// Which.
    pub mix: Mix,
    /// Differences that are cut down; further ones are reported as they are.
    pub minimised_max: usize,
    /// Prints every statement before it is sent.
    pub verbose: bool,
    /// The one statement to run, counted from 1, or all.
    pub only: Option<usize>,
}

impl Campaign {
    /// Runs it and fills the report. Says how things stand now and then.
    ///
    /// # Errors
    /// When a server is gone for good.
    pub fn run(&self, pair: &mut Pair, report: &mut Report) -> Result<(), String> {
        let catalog = Catalog::read(pair.postgres())?;
        let schema = pair.schema.clone();
        let mut generator = Generator::new(self.seed, &catalog, &schema);
        let mut minimised = 0;
        let mut told = Instant::now();
        for number in 1..=self.statements {
            let statement = generator.statement(self.mix);
            if self.only.is_some_and(|only| only != number) {
                continue;
            }
            if self.verbose {
                eprintln!("#{number}: {}", statement.tree.sql());
            }
            report.statements += 1;
            let mut worst = self.one(pair, report, &statement, &statement.tree, number, &mut minimised)?;
            if let Some(off_key) = &statement.off_key {
                worst = worst.max(self.one(pair, report, &statement, off_key, number, &mut minimised)?);
            }
            report.verdict(worst);
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                eprintln!("{}", report.summary());
            }
        }
        Ok(())
    }

    /// One form of a statement in every way, up to the first that is not the same.
    fn one(
        &self,
        pair: &mut Pair,
        report: &mut Report,
        statement: &Statement,
        tree: &Node,
        number: usize,
        minimised: &mut usize,
    ) -> Result<Verdict, String> {
        let mut worst = Verdict::Same;
        // Some queries run several times, some as cursors, some as views.
        let mut ways: Vec<Way> = Way::ALL.to_vec();
        ways.extend(match (statement.changes, number % 8) {
            (false, 3) => Some(Way::Repeated),
            (false, 7) => Some(Way::Cursor),
            _ => None,
        });
        let mut next = 0;
        while let Some(way) = ways.get(next).copied() {
            next += 1;
            let found = pair.compare(tree, statement, way)?;
            if next == 1
                && number % 4 == 1
                && !statement.changes
                && let Answer::Rows(rows) = &found.oracle
            {
                ways.push(Way::View {
                    columns: rows.columns.len(),
                });
            }
            report.messages += 1;
            worst = worst.max(found.verdict);
            match found.verdict {
                Verdict::Same | Verdict::Permitted => report.same(&found),
                Verdict::Unsupported => {
                    report.gap(&found);
                    return Ok(worst);
                }
                verdict => {
                    if let Some(key) = report.well_known(&found) {
                        report.once_more(verdict, key);
                        return Ok(worst);
                    }
                    let off_key = statement.off_key.as_ref() == Some(tree);
                    let (small, found) = if *minimised < self.minimised_max {
                        *minimised += 1;
                        minimise(pair, statement, tree, way, found)?
                    } else {
                        (tree.clone(), found)
                    };
                    let permitted = report.difference(&small, found, way, off_key, number);
                    return Ok(if permitted { Verdict::Permitted } else { worst });
                }
            }
        }
        Ok(worst)
    }
}
