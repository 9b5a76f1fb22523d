//! The JSON form of a run.

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use crate::machine::Run;

/// Everything except the trace, which has a [format of its own](crate::Trace::write_json).
impl<T: Serialize> Serialize for Run<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Run", 3)?;
        fields.serialize_field("value", &self.value)?;
        fields.serialize_field("report", &self.report)?;
        fields.serialize_field("locks", &self.locks)?;
        fields.end()
    }
}
