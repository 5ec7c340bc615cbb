//! Sinks between the parts of a statement that several ranks run, and the client's.

use std::ops::ControlFlow;

use weft::SqlError;
use weft::sink::{CommandTag, CopyHeader, NoticeLevel, OutputColumn, ResultSink, RowRef};

/// Describes the rows with the first of them, so that nothing has been pushed when a rank refuses.
pub(crate) struct Described<'a> {
    pub sink: &'a mut dyn ResultSink,
    pub columns: Option<&'a [OutputColumn]>,
}

impl Described<'_> {
    pub fn describe(&mut self) {
        if let Some(columns) = self.columns.take() {
            self.sink.columns(columns);
        }
    }
}

impl ResultSink for Described<'_> {
    fn columns(&mut self, _columns: &[OutputColumn]) {}

    fn row(&mut self, row: RowRef<'_>) -> ControlFlow<()> {
        self.describe();
        self.sink.row(row)
    }

    fn complete(&mut self, tag: &CommandTag) {
        self.describe();
        self.sink.complete(tag);
    }

    fn notice(&mut self, level: NoticeLevel, notice: &SqlError) {
        self.sink.notice(level, notice);
    }
}

/// Nobody wants the result.
pub(crate) struct Discard;

impl ResultSink for Discard {
    fn columns(&mut self, _columns: &[OutputColumn]) {}

    fn row(&mut self, _row: RowRef<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn complete(&mut self, _tag: &CommandTag) {}
}

/// Results of one rank's part: rows pass if they count, the tag is kept.
pub(crate) struct Gather<'a> {
    pub sink: &'a mut dyn ResultSink,
    pub pushes: bool,
    pub tag: Option<CommandTag>,
}

impl ResultSink for Gather<'_> {
    fn columns(&mut self, _columns: &[OutputColumn]) {}

    fn row(&mut self, row: RowRef<'_>) -> ControlFlow<()> {
        match self.pushes {
            true => self.sink.row(row),
            false => ControlFlow::Continue(()),
        }
    }

    fn complete(&mut self, tag: &CommandTag) {
        self.tag = Some(tag.clone());
    }

    fn notice(&mut self, level: NoticeLevel, notice: &SqlError) {
        if self.pushes {
            self.sink.notice(level, notice);
        }
    }

    fn copy_in(
        &mut self,
        header: CopyHeader,
        take: &mut dyn FnMut(&[u8]) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        self.sink.copy_in(header, take)
    }
}

/// Keeps a statement's tag and notices until other ranks have done the same.
#[derive(Default)]
pub(crate) struct Held {
    tags: Vec<CommandTag>,
    notices: Vec<(NoticeLevel, SqlError)>,
}

impl Held {
    pub fn give(self, sink: &mut dyn ResultSink) {
        for (level, notice) in &self.notices {
            sink.notice(*level, notice);
        }
        for tag in &self.tags {
            sink.complete(tag);
        }
    }
}

impl ResultSink for Held {
    fn columns(&mut self, _columns: &[OutputColumn]) {}

    fn row(&mut self, _row: RowRef<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn complete(&mut self, tag: &CommandTag) {
        self.tags.push(tag.clone());
    }

    fn notice(&mut self, level: NoticeLevel, notice: &SqlError) {
        self.notices.push((level, notice.clone()));
    }
}
