//! Compares columnar with scalar evaluation: random expressions over random columns with NULLs give
//! the results of [`weft_expression::evaluate`] row by row, errors included.

use proptest::prelude::*;
use weft_expression::functions::{functions, infix_operators};
use weft_expression::{Arg, CompareOp, Compiled, Entry, NoSession, Op};
use weft_types::{Numeric, NumericSpec, TimeZone, Value, ValueRef};

use super::*;
use crate::arrays::{ValueColumn, array_of_values};
use crate::schema::{arrow_type, column_type};
use crate::session::Execution;

pub(crate) fn nothing() -> Arc<ExecutionContext> {
    let execution = Execution::new(Vec::new(), TimeZone::UTC, Arc::new(NoSession));
    Arc::new(ExecutionContext::single(execution))
}

/// Random choices from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

const MONEY: SqlType = SqlType::Numeric(Some(NumericSpec {
    precision: 10,
    scale: 2,
}));
const NUMERIC: SqlType = SqlType::Numeric(None);

/// The types of the columns; a column's id is its position.
const COLUMNS: [SqlType; 11] = [
    SqlType::Bool,
    SqlType::Bool,
    SqlType::Int4,
    SqlType::Int4,
    SqlType::Int8,
    SqlType::Int2,
    NUMERIC,
    MONEY,
    SqlType::Float8,
    SqlType::Text,
    SqlType::Text,
];

fn data_type(ty: &SqlType) -> DataType {
    column_type(ty)
}

/// The types of expressions, without modifiers.
const TYPES: [SqlType; 6] = [
    SqlType::Bool,
    SqlType::Int4,
    SqlType::Int8,
    NUMERIC,
    SqlType::Float8,
    SqlType::Text,
];

fn value(draw: &mut Draw, ty: &SqlType) -> Value {
    if draw.below(5) == 0 {
        return Value::Null;
    }
    let small = draw.below(7) as i64 - 3;
    match ty {
        SqlType::Bool => Value::Bool(small > 0),
        SqlType::Int2 => Value::Int2(if draw.below(9) == 0 {
            i16::MIN
        } else {
            small as i16
        }),
        SqlType::Int4 => Value::Int4(if draw.below(9) == 0 {
            i32::MAX
        } else {
            small as i32
        }),
        SqlType::Int8 => Value::Int8(if draw.below(9) == 0 { i64::MIN } else { small }),
        SqlType::Float8 => {
            let odd = [f64::NAN, f64::INFINITY, -0.0, 1e308, 5e-324];
            Value::Float8(if draw.below(4) == 0 {
                odd[draw.below(5)]
            } else {
                small as f64 / 2.0
            })
        }
        SqlType::Numeric(spec) => {
            let text = match (draw.below(8), spec) {
                (0, _) => "NaN".to_string(),
                (1, None) => "123456789012345678901234567890123456789.5".to_string(),
                (2, None) => format!("{small}.000"),
                _ => format!("{small}.{:02}", draw.below(100)),
            };
            Value::Numeric(Numeric::parse(&text).unwrap())
        }
        _ => Value::Text(["", "a", "Ab", "b%", "é_É", "abab"][draw.below(6)].to_string()),
    }
}

fn column(draw: &mut Draw, ty: SqlType) -> Expr {
    let fitting: Vec<usize> = (0..COLUMNS.len())
        .filter(|at| COLUMNS[*at].without_typmod() == ty)
        .collect();
    if fitting.is_empty() || draw.below(4) == 0 {
        return Expr::constant(value(draw, &ty), ty);
    }
    let at = fitting[draw.below(fitting.len())];
    let column = Expr::column(ColumnId(at as u32), COLUMNS[at]);
    if COLUMNS[at] == ty {
        column
    } else {
        cast(column, ty)
    }
}

fn cast(expr: Expr, to: SqlType) -> Expr {
    let from = expr.ty();
    Expr::new(Op::Cast { from, explicit: true }, to, vec![expr])
}

fn entry(entries: &[&'static Entry], arguments: &[SqlType]) -> Option<&'static Entry> {
    let fits = |entry: &&&'static Entry| {
        entry.arguments.len() == arguments.len()
            && entry
                .arguments
                .iter()
                .zip(arguments)
                .all(|(arg, ty)| *arg == Arg::Is(*ty))
    };
    entries.iter().find(fits).copied()
}

fn compare_op(draw: &mut Draw) -> CompareOp {
    use CompareOp::{Eq, Ge, Gt, Le, Lt, Ne};
    [Eq, Ne, Lt, Le, Gt, Ge][draw.below(6)]
}

fn case(draw: &mut Draw, ty: SqlType, depth: usize) -> Expr {
    let operand = draw.below(2) == 0;
    let mut arguments = Vec::new();
    let over = TYPES[draw.below(6)];
    if operand {
        arguments.push(expr(draw, over, depth - 1));
    }
    for _ in 0..=draw.below(2) {
        arguments.push(if operand {
            let item = expr(draw, over, depth - 1);
            let held = Expr::leaf(Op::CaseOperand, over);
            Expr::new(Op::Compare(compare_op(draw)), SqlType::Bool, vec![held, item])
        } else {
            expr(draw, SqlType::Bool, depth - 1)
        });
        arguments.push(expr(draw, ty, depth - 1));
    }
    arguments.push(expr(draw, ty, depth - 1));
    Expr::new(Op::Case { operand }, ty, arguments)
}

fn expr(draw: &mut Draw, ty: SqlType, depth: usize) -> Expr {
    if depth == 0 || draw.below(6) == 0 {
        return column(draw, ty);
    }
    match draw.below(8) {
        0 => return case(draw, ty, depth),
        1 => {
            let arguments = (0..2 + draw.below(2))
                .map(|_| expr(draw, ty, depth - 1))
                .collect();
            return Expr::new(Op::Coalesce, ty, arguments);
        }
        2 => {
            let (a, b) = (expr(draw, ty, depth - 1), expr(draw, ty, depth - 1));
            let same = Expr::new(Op::Compare(CompareOp::Eq), SqlType::Bool, vec![a.clone(), b]);
            return Expr::new(Op::NullIf, ty, vec![a, same]);
        }
        3 => {
            let arguments = (0..2).map(|_| expr(draw, ty, depth - 1)).collect();
            return Expr::new([Op::Greatest, Op::Least][draw.below(2)].clone(), ty, arguments);
        }
        _ => {}
    }
    match ty {
        SqlType::Bool => condition(draw, depth),
        SqlType::Text => {
            let argument = expr(draw, ty, depth - 1);
            let name = ["lower", "upper"][draw.below(2)];
            match entry(functions(name), &[ty]) {
                Some(entry) => Expr::new(Op::Call(entry), ty, vec![argument]),
                None => argument,
            }
        }
        ty if draw.below(4) == 0 => {
            let from = [SqlType::Int4, SqlType::Int8, NUMERIC][draw.below(3)];
            cast(expr(draw, from, depth - 1), ty)
        }
        ty => {
            let symbol = ["+", "-", "*", "/", "%"][draw.below(5)];
            let (a, b) = (expr(draw, ty, depth - 1), expr(draw, ty, depth - 1));
            match entry(infix_operators(symbol), &[ty, ty]) {
                Some(entry) => Expr::new(Op::Call(entry), ty, vec![a, b]),
                None => a,
            }
        }
    }
}

fn condition(draw: &mut Draw, depth: usize) -> Expr {
    let over = TYPES[draw.below(6)];
    let op = match draw.below(8) {
        0 => Op::And,
        1 => Op::Or,
        2 => {
            let inner = expr(draw, SqlType::Bool, depth - 1);
            let op = [Op::Not, Op::IsTruth(true), Op::IsTruth(false)][draw.below(3)].clone();
            return Expr::new(op, SqlType::Bool, vec![inner]);
        }
        3 => return Expr::new(Op::IsNull, SqlType::Bool, vec![expr(draw, over, depth - 1)]),
        4 => Op::IsDistinct,
        5 => {
            let mut arguments = vec![expr(draw, over, depth - 1)];
            let constant = draw.below(2) == 0;
            for _ in 0..1 + draw.below(12) {
                arguments.push(if constant {
                    Expr::constant(value(draw, &over), over)
                } else {
                    column(draw, over)
                });
            }
            let negated = draw.below(2) == 0;
            return Expr::new(Op::InList { negated }, SqlType::Bool, arguments);
        }
        6 if over == SqlType::Text => {
            let (text, pattern) = (expr(draw, over, depth - 1), expr(draw, over, 0));
            match entry(infix_operators("~~"), &[over, over]) {
                Some(entry) => return Expr::new(Op::Call(entry), SqlType::Bool, vec![text, pattern]),
                None => return Expr::new(Op::IsNull, SqlType::Bool, vec![text]),
            }
        }
        _ => Op::Compare(compare_op(draw)),
    };
    let (count, ty) = if matches!(op, Op::And | Op::Or) {
        (2 + draw.below(3), SqlType::Bool)
    } else {
        (2, over)
    };
    let arguments = (0..count).map(|_| expr(draw, ty, depth - 1)).collect();
    Expr::new(op, SqlType::Bool, arguments)
}

/// The values row by row, or the error of a row.
fn singly(expr: &Expr, rows: &[Vec<Value>]) -> Result<Vec<Value>, SqlError> {
    let compiled = Compiled::new(expr, &|id| Some(id.0 as usize))?;
    let execution = nothing().execution();
    let context = execution.context();
    rows.iter()
        .map(|row| compiled.evaluate(&context, &|at| row.get(at).map_or(ValueRef::Null, Value::as_ref)))
        .collect()
}

fn columnwise(expr: &Expr, rows: &[Vec<Value>]) -> Result<Vec<Value>, SqlError> {
    let inputs: Vec<(ColumnId, DataType)> = COLUMNS
        .iter()
        .enumerate()
        .map(|(at, ty)| (ColumnId(at as u32), data_type(ty)))
        .collect();
    let arrays: Vec<ArrayRef> = COLUMNS
        .iter()
        .enumerate()
        .map(|(at, ty)| {
            let values: Vec<Value> = rows.iter().map(|row| row[at].clone()).collect();
            array_of_values(&values, ty, &data_type(ty)).unwrap()
        })
        .collect();
    let batch = BatchExpr::new(expr, &inputs, &nothing())?;
    let array = batch.evaluate(&arrays, rows.len())?;
    assert_eq!(array.data_type(), &batch.data_type());
    assert_eq!(array.len(), rows.len());
    let again = batch.evaluate(&arrays, rows.len())?;
    assert_eq!(&array, &again);
    let column = ValueColumn::new(&array, &expr.ty())?;
    Ok((0..rows.len()).map(|row| column.value(row)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn columns_evaluate_like_single_values(seed in 1_u64.., depth in 1_usize..5, count in 0_usize..12) {
        let mut draw = Draw(seed);
        let ty = TYPES[draw.below(6)];
        let expr = expr(&mut draw, ty, depth);
        let rows: Vec<Vec<Value>> = (0..count)
            .map(|_| COLUMNS.iter().map(|ty| value(&mut draw, ty)).collect())
            .collect();
        match (singly(&expr, &rows), columnwise(&expr, &rows)) {
            (Ok(expected), Ok(found)) => prop_assert_eq!(found, expected, "{:?} over {:?}", expr, rows),
            // Which of several rows' errors is raised is unspecified.
            (Err(_), Err(_)) => {}
            (expected, found) => {
                prop_assert!(false, "{expected:?} against {found:?} of {expr:?} over {rows:?}");
            }
        }
    }
}

fn int(value: i32) -> Expr {
    Expr::constant(Value::Int4(value), SqlType::Int4)
}

fn infix(symbol: &str, left: Expr, right: Expr) -> Expr {
    let ty = left.ty();
    let entry = entry(infix_operators(symbol), &[ty, ty]).unwrap();
    Expr::new(Op::Call(entry), ty, vec![left, right])
}

/// An error in a branch that no row takes is never raised, constant or not.
#[test]
fn unused_values_are_not_computed() {
    let column = || Expr::column(ColumnId(2), SqlType::Int4);
    let rows: Vec<Vec<Value>> = [0, 1, 2]
        .map(|number| {
            let mut row: Vec<Value> = COLUMNS.iter().map(|_| Value::Null).collect();
            row[2] = Value::Int4(number);
            row
        })
        .to_vec();
    let zero = Expr::new(Op::Compare(CompareOp::Eq), SqlType::Bool, vec![column(), int(0)]);
    let quotient = infix("/", int(10), column());
    let guarded = Expr::new(
        Op::Case { operand: false },
        SqlType::Int4,
        vec![zero, int(-1), quotient],
    );
    let found = columnwise(&guarded, &rows).unwrap();
    assert_eq!(found, [-1, 10, 5].map(Value::Int4));
    let never = Expr::new(Op::Compare(CompareOp::Gt), SqlType::Bool, vec![column(), int(7)]);
    let failing = infix("/", int(1), int(0));
    let constant = Expr::new(
        Op::Case { operand: false },
        SqlType::Int4,
        vec![never, failing, column()],
    );
    assert_eq!(columnwise(&constant, &rows).unwrap(), [0, 1, 2].map(Value::Int4));
    assert!(columnwise(&infix("+", column(), infix("/", int(1), int(0))), &rows).is_err());
    assert!(
        columnwise(&infix("+", column(), infix("/", int(1), int(0))), &[])
            .unwrap()
            .is_empty()
    );
}

/// A chain as deep as memory allows is compiled and evaluated.
#[test]
fn deep_expressions_use_no_stack() {
    let mut sum = Expr::column(ColumnId(2), SqlType::Int4);
    for _ in 0..20_000 {
        sum = infix("+", sum, int(1));
    }
    let mut row: Vec<Value> = COLUMNS.iter().map(|_| Value::Null).collect();
    row[2] = Value::Int4(5);
    assert_eq!(columnwise(&sum, &[row]).unwrap(), [Value::Int4(20_005)]);
}

/// Measures `a + b * 2 > c` against bare kernels; prints, run by hand.
#[test]
#[ignore = "measures"]
fn arithmetic_is_as_fast_as_kernels() {
    use datafusion::arrow::array::{Int32Array, Scalar};
    use datafusion::arrow::compute::kernels::{cmp, numeric};
    let rows = 8192;
    let arrays: Vec<ArrayRef> = (0..3)
        .map(|column| {
            Arc::new(
                (0..rows as i32)
                    .map(|row| (row * 7 + column) % 1000)
                    .collect::<Int32Array>(),
            ) as _
        })
        .collect();
    let columns: Vec<Expr> = (0..3)
        .map(|at| Expr::column(ColumnId(at), SqlType::Int4))
        .collect();
    let sum = infix("+", columns[0].clone(), infix("*", columns[1].clone(), int(2)));
    let expr = Expr::new(
        Op::Compare(CompareOp::Gt),
        SqlType::Bool,
        vec![sum, columns[2].clone()],
    );
    let inputs: Vec<_> = (0..3)
        .map(|at| (ColumnId(at), arrow_type(&SqlType::Int4)))
        .collect();
    let batch = BatchExpr::new(&expr, &inputs, &nothing()).unwrap();
    let time = |work: &dyn Fn()| {
        let start = std::time::Instant::now();
        (0..2000).for_each(|_| work());
        start.elapsed() / 2000
    };
    let ours = time(&|| drop(batch.evaluate(&arrays, rows).unwrap()));
    let two = Scalar::new(Int32Array::from(vec![2]));
    let bare = time(&|| {
        let product = numeric::mul(&arrays[1], &two).unwrap();
        let sum = numeric::add(&arrays[0], &product).unwrap();
        drop(cmp::gt(&sum, &arrays[2]).unwrap());
    });
    println!("ours {ours:?}, kernels {bare:?}");
}

/// Products of columns of 38 digits are Decimal256 columns where they are only added up, and in stored form
/// where they are used for anything else.
#[test]
fn only_what_is_added_up_is_wide() {
    let ty = SqlType::Numeric(None);
    let product = infix("*", Expr::column(ColumnId(0), ty), Expr::column(ColumnId(1), ty));
    let above = infix("+", product.clone(), Expr::column(ColumnId(0), ty));
    let of_digits = |digits| DataType::Decimal128(digits, 2);
    let wide = |expr: &Expr, digits| {
        let inputs = [(ColumnId(0), of_digits(digits)), (ColumnId(1), of_digits(digits))];
        let types = [BatchExpr::new, BatchExpr::summed].map(|make| make(expr, &inputs, &nothing()).unwrap());
        types.map(|batch| batch.data_type())
    };
    assert_eq!(
        wide(&product, 38),
        [DataType::Binary, DataType::Decimal256(76, 4)]
    );
    assert_eq!(
        wide(&product, 19),
        [DataType::Decimal128(38, 4), DataType::Decimal128(38, 4)]
    );
    // The product below is stored already.
    assert_eq!(wide(&above, 38), [DataType::Binary, DataType::Binary]);
}
