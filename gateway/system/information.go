package system

import (
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// informationTables are those of the standard's information_schema that say
// something, and those without rows that clients ask for all the same.
var informationTables = []table{
	defineIn(informationSchema, "information_schema_catalog_name", func(_ *State, r *rows) { r.add(Catalog) }, text("catalog_name")),
	defineIn(informationSchema, "schemata", fillSchemata, texts(`catalog_name schema_name schema_owner default_character_set_catalog
		default_character_set_schema default_character_set_name sql_path`)...),
	defineIn(informationSchema, "tables", fillInformationTables, texts(`table_catalog table_schema table_name table_type
		self_referencing_column_name reference_generation user_defined_type_catalog user_defined_type_schema user_defined_type_name
		is_insertable_into is_typed commit_action`)...),
	defineIn(informationSchema, "columns", fillInformationColumns, informationColumns()...),
	defineIn(informationSchema, "table_constraints", fillTableConstraints, texts(`constraint_catalog constraint_schema constraint_name
		table_catalog table_schema table_name constraint_type is_deferrable initially_deferred enforced nulls_distinct`)...),
	defineIn(informationSchema, "key_column_usage", fillKeyColumnUsage, slices.Concat(
		texts(`constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name column_name`),
		numbers(`ordinal_position position_in_unique_constraint`))...),
	defineIn(informationSchema, "constraint_column_usage", fillConstraintColumnUsage, texts(`table_catalog table_schema table_name column_name
		constraint_catalog constraint_schema constraint_name`)...),
	defineIn(informationSchema, "referential_constraints", noRows, texts(`constraint_catalog constraint_schema constraint_name
		unique_constraint_catalog unique_constraint_schema unique_constraint_name match_option update_rule delete_rule`)...),
	defineIn(informationSchema, "check_constraints", noRows, texts(`constraint_catalog constraint_schema constraint_name check_clause`)...),
	defineIn(informationSchema, "views", noRows, texts(`table_catalog table_schema table_name view_definition check_option is_updatable
		is_insertable_into is_trigger_updatable is_trigger_deletable is_trigger_insertable_into`)...),
	defineIn(informationSchema, "sequences", noRows, slices.Concat(texts(`sequence_catalog sequence_schema sequence_name data_type`),
		numbers(`numeric_precision numeric_precision_radix numeric_scale`), texts(`start_value minimum_value maximum_value increment cycle_option`))...),
	defineIn(informationSchema, "routines", noRows, texts(`specific_catalog specific_schema specific_name routine_catalog routine_schema
		routine_name routine_type data_type routine_definition`)...),
	defineIn(informationSchema, "triggers", noRows, texts(`trigger_catalog trigger_schema trigger_name event_manipulation event_object_catalog
		event_object_schema event_object_table action_statement action_orientation action_timing`)...),
	defineIn(informationSchema, "character_sets", fillCharacterSets, texts(`character_set_catalog character_set_schema character_set_name
		character_repertoire form_of_use default_collate_catalog default_collate_schema default_collate_name`)...),
}

// noRows fills the tables about what there is none of.
func noRows(*State, *rows) {}

func fillSchemata(s *State, r *rows) {
	for _, name := range s.schemas() {
		r.add(Catalog, name, owner)
	}
}

func fillInformationTables(s *State, r *rows) {
	for _, t := range s.relations() {
		kind := "BASE TABLE"
		if t.System {
			kind = "VIEW"
		}
		r.add(Catalog, t.Schema, t.Name, kind, nil, nil, nil, nil, nil, yesNo(!t.System), "NO")
	}
}

func informationColumns() []catalog.Column {
	return slices.Concat(
		texts(`table_catalog table_schema table_name column_name`), numbers(`ordinal_position`),
		texts(`column_default is_nullable data_type`),
		numbers(`character_maximum_length character_octet_length numeric_precision numeric_precision_radix numeric_scale datetime_precision`),
		texts(`interval_type`), numbers(`interval_precision`),
		texts(`character_set_catalog character_set_schema character_set_name collation_catalog collation_schema collation_name
			domain_catalog domain_schema domain_name udt_catalog udt_schema udt_name scope_catalog scope_schema scope_name`),
		numbers(`maximum_cardinality`),
		texts(`dtd_identifier is_self_referencing is_identity identity_generation identity_start identity_increment identity_maximum
			identity_minimum identity_cycle is_generated generation_expression is_updatable`))
}

// octetsPerCharacter is the most that UTF-8 needs.
const octetsPerCharacter = 4

func fillInformationColumns(s *State, r *rows) {
	for _, t := range s.relations() {
		for i := range t.Columns {
			c := &t.Columns[i]
			kind := typeOf(c)
			var length, octets, precision, radix, scale, digits any
			switch d, decimal := c.Type.(*arrow.Decimal128Type); {
			case decimal:
				precision, radix, scale = int64(d.Precision), int64(10), int64(d.Scale)
			case kind.bits > 0:
				precision, radix = kind.bits, int64(2)
				if !arrow.IsFloating(c.Type.ID()) {
					scale = int64(0)
				}
			case kind.timed:
				digits = kind.digits
			case c.MaxLength > 0:
				length, octets = int64(c.MaxLength), int64(octetsPerCharacter*c.MaxLength)
			case c.Type.ID() == arrow.STRING:
				octets = int64(1 << 30)
			}
			r.add(Catalog, t.Schema, t.Name, c.Name, i+1, orNull(c.Default), yesNo(c.Nullable), kind.name,
				length, octets, precision, radix, scale, digits, nil, nil,
				nil, nil, nil, nil, nil, nil, nil, nil, nil, Catalog, ImplicitSchema, kind.udt, nil, nil, nil, nil,
				strconv.Itoa(i+1), "NO", "NO", nil, nil, nil, nil, nil, "NO", "NEVER", nil, yesNo(!t.System))
		}
	}
}

func fillTableConstraints(s *State, r *rows) {
	for _, t := range s.Meta.Tables {
		if len(t.PrimaryKey) > 0 {
			r.add(Catalog, t.Schema, keyName(t), Catalog, t.Schema, t.Name, "PRIMARY KEY", "NO", "NO", "YES")
		}
	}
}

func fillKeyColumnUsage(s *State, r *rows) {
	for _, t := range s.Meta.Tables {
		for i, c := range t.PrimaryKey {
			r.add(Catalog, t.Schema, keyName(t), Catalog, t.Schema, t.Name, t.Columns[c].Name, i+1, nil)
		}
	}
}

func fillConstraintColumnUsage(s *State, r *rows) {
	for _, t := range s.Meta.Tables {
		for _, c := range t.PrimaryKey {
			r.add(Catalog, t.Schema, t.Name, t.Columns[c].Name, Catalog, t.Schema, keyName(t))
		}
	}
}

func fillCharacterSets(_ *State, r *rows) {
	r.add(nil, nil, "UTF8", "UCS", "UTF8", Catalog, ImplicitSchema, "C")
}
