//! Tests of lanes.
