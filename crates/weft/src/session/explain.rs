//! EXPLAIN: the program of a point statement, or the query engine's plan.

use std::sync::Arc;
use std::time::Instant;

use weft_binder::relation::Query;
use weft_query::Reading;
use weft_sql::statement::{self, ExplainPlan, Plan};
use weft_types::{SqlError, Value};

use super::{Session, VersionedPlan};
use crate::rows::Collected;
use crate::sink::{CommandTag, PipelinePosition, ResultSink};

impl Session {
    pub(crate) fn run_explain(
        &mut self,
        plan: &ExplainPlan,
        planned: &VersionedPlan,
        params: &[Value],
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let mut lines = self.explain_lines(&plan.inner, params)?;
        if plan.device {
            lines.insert(0, statement::explain::explain_device(&plan.inner));
        }
        if plan.analyze {
            let began = Instant::now();
            let mut rows = Collected::default();
            let planned = planned.with_plan(plan.inner.clone());
            self.run_plan(&planned, params, PipelinePosition::Pipelined, &mut rows)?;
            lines.push(format!("Rows: {}", rows.affected()));
            lines.push(format!(
                "Execution Time: {:.3} ms",
                began.elapsed().as_secs_f64() * 1e3
            ));
        }
        let rows: Vec<Vec<String>> = lines.into_iter().map(|line| vec![line]).collect();
        self.push_table(&plan.columns, &rows, sink)?;
        sink.complete(&CommandTag::plain("EXPLAIN"));
        Ok(())
    }

    fn explain_lines(&mut self, plan: &Plan, params: &[Value]) -> Result<Vec<String>, SqlError> {
        match plan {
            Plan::Constant(plan) => Ok(statement::explain::explain_constant(plan)),
            Plan::Program(plan) => Ok(statement::explain::explain_program(plan, &self.catalog())),
            Plan::Query(plan) => self.explain_query(&plan.query, params),
            Plan::Modify(modify) => {
                let modify = &modify.modify;
                let mut lines = vec![format!("{:?} on {}", modify.kind, modify.table.name)];
                let below = self.explain_query(&modify.rows, params)?;
                lines.extend(below.into_iter().map(|line| format!("  {line}")));
                Ok(lines)
            }
            _ => Ok(vec!["Utility statement".to_string()]),
        }
    }

    fn explain_query(&mut self, query: &Arc<Query>, params: &[Value]) -> Result<Vec<String>, SqlError> {
        let source = self.describe_source()?;
        let settings = self.query_settings(&self.statement_session());
        let reading = Reading {
            source,
            target: None,
            given: None,
            steps: Arc::new(query.steps.iter().map(|step| (step.number, Vec::new())).collect()),
            environment: self.environment(&settings),
        };
        let mut lines = self.shared.queries.explain(query, reading, params, &settings)?;
        for step in &query.steps {
            lines.push(format!("Step {}, which locks rows", step.number));
            let below = self.explain_query(&step.locked.rows, params)?;
            lines.extend(below.into_iter().map(|line| format!("  {line}")));
        }
        Ok(lines)
    }
}
