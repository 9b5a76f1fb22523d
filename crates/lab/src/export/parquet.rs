//! Columns as a Parquet file: one group of rows, in which every column may have nulls.

use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};
use serde_json::Value;

use super::{Column, Columns, text};

/// The kind of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ColumnKind {
    Flag,
    Whole,
    Number,
    Text,
}

/// The narrowest kind that has all cells.
fn kind(column: &[Value]) -> ColumnKind {
    let all = |is: fn(&Value) -> bool| column.iter().all(|cell| cell.is_null() || is(cell));
    match () {
        // What is null in all rows could be anything.
        () if all(|_| false) => ColumnKind::Text,
        () if all(Value::is_boolean) => ColumnKind::Flag,
        () if all(Value::is_u64) => ColumnKind::Whole,
        () if all(Value::is_number) => ColumnKind::Number,
        () => ColumnKind::Text,
    }
}

fn field(name: &str, kind: ColumnKind) -> Result<TypePtr> {
    let (physical, converted) = match kind {
        ColumnKind::Flag => (Physical::BOOLEAN, ConvertedType::NONE),
        ColumnKind::Whole => (Physical::INT64, ConvertedType::UINT_64),
        ColumnKind::Number => (Physical::DOUBLE, ConvertedType::NONE),
        ColumnKind::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
    };
    let field = Type::primitive_type_builder(name, physical);
    let field = field.with_repetition(Repetition::OPTIONAL).with_converted_type(converted);
    Ok(Arc::new(field.build()?))
}

/// The bytes of a file. `facts` are about the whole file, by name.
pub(crate) fn file(Columns(columns): &Columns, facts: &[(&str, String)]) -> Result<Vec<u8>> {
    let kind = |column: &Column| column.kind.unwrap_or_else(|| kind(&column.cells));
    let fields: Result<Vec<_>> =
        columns.iter().map(|column| field(&column.name, kind(column))).collect();
    let schema = Type::group_type_builder("rows").with_fields(fields?).build()?;
    let mut bytes = Vec::new();
    let facts = facts.iter().map(|(name, value)| KeyValue::new((*name).to_owned(), value.clone()));
    let facts: Vec<KeyValue> = facts.collect();
    let settings = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_key_value_metadata((!facts.is_empty()).then_some(facts));
    let settings = Arc::new(settings.build());
    let mut file = SerializedFileWriter::new(&mut bytes, Arc::new(schema), settings)?;
    let mut group = file.next_row_group()?;
    for column in columns {
        let cells = &column.cells;
        match kind(column) {
            ColumnKind::Flag => write::<BoolType>(&mut group, cells, Value::as_bool)?,
            // The same bits: the schema says that there is no sign.
            ColumnKind::Whole => {
                let whole = |cell: &Value| cell.as_u64().map(u64::cast_signed);
                write::<Int64Type>(&mut group, cells, whole)?;
            }
            ColumnKind::Number => write::<DoubleType>(&mut group, cells, Value::as_f64)?,
            ColumnKind::Text => {
                let bytes = |cell: &Value| (!cell.is_null()).then(|| ByteArray::from(&*text(cell)));
                write::<ByteArrayType>(&mut group, cells, bytes)?;
            }
        }
    }
    group.close()?;
    file.close()?;
    Ok(bytes)
}

type Group<'a, 'b> = parquet::file::writer::SerializedRowGroupWriter<'a, &'b mut Vec<u8>>;

/// Writes the next column. A cell has a level of 1, and one that is null has 0.
fn write<T: DataType>(
    group: &mut Group<'_, '_>,
    cells: &[Value],
    of: impl Fn(&Value) -> Option<T::T>,
) -> Result<()> {
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(!cell.is_null())).collect();
    let values: Vec<T::T> = cells.iter().filter_map(of).collect();
    if let Some(mut column) = group.next_column()? {
        column.typed::<T>().write_batch(&values, Some(&levels), None)?;
        column.close()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::super::tests::columns;
    use super::*;

    /// The rows of a file, by the package's own reader. Two tests have two names.
    fn rows(name: &str, bytes: &[u8]) -> Vec<Vec<(String, Field)>> {
        let path = std::env::temp_dir().join(format!("{name}-{}.parquet", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let row = |row: Result<parquet::record::Row>| {
            let row = row.unwrap();
            row.get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect()
        };
        reader.get_row_iter(None).unwrap().map(row).collect()
    }

    #[test]
    fn what_is_written_as_parquet_is_read_again() {
        let rows = rows("read-again", &file(&columns(), &[]).unwrap());
        let names = ["scenario", "params.threads", "value", "why", "params.look"];
        let text = |text: &str| Field::Str(text.to_owned());
        let first = [text("x"), Field::ULong(2), Field::Double(1.5), Field::Null, Field::Null];
        let second = [text("x"), Field::Null, Field::Null, text("two\nlines"), text("a \"b\", c")];
        for (row, fields) in rows.iter().zip([first, second]) {
            let expected: Vec<_> = names.map(str::to_owned).into_iter().zip(fields).collect();
            assert_eq!(*row, expected);
        }
        assert_eq!(rows.len(), 2);
    }

    #[test]
    fn a_column_has_the_narrowest_type_that_has_all_its_cells() {
        let result = serde_json::json!({ "rows": [
            { "flag": true, "large": u64::MAX, "mixed": 1, "none": null },
            { "flag": false, "large": null, "mixed": 0.5, "none": null },
        ] });
        let rows = rows("narrowest", &file(&Columns::new(&result, &[]), &[]).unwrap());
        let fields: Vec<_> = rows[0].iter().map(|(_, field)| field.clone()).collect();
        let expected = [Field::Bool(true), Field::ULong(u64::MAX), Field::Double(1.0), Field::Null];
        assert_eq!(fields, expected);
    }
}
