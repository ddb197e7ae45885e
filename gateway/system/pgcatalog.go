package system

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"skein/catalog"
	"skein/consensus"
	"skein/exec"
	"skein/sql"
)

// pgTables are those of PostgreSQL's catalog that clients ask for. Vectors, which
// there is no type for, are texts as PostgreSQL prints them.
var pgTables = []table{
	defineIn(ImplicitSchema, "pg_namespace", fillNamespace, slices.Concat(numbers("oid"), texts("nspname"), numbers("nspowner"), texts("nspacl"))...),
	defineIn(ImplicitSchema, "pg_class", fillClass, slices.Concat(numbers("oid"), texts("relname"),
		numbers("relnamespace reltype reloftype relowner relam relfilenode reltablespace relpages reltuples reltoastrelid"),
		flags("relhasindex relisshared"), texts("relpersistence relkind"), numbers("relnatts relchecks"),
		flags("relhasrules relhastriggers relhassubclass relrowsecurity relispopulated relispartition"), texts("relacl reloptions relpartbound"))...),
	defineIn(ImplicitSchema, "pg_attribute", fillAttribute, slices.Concat(numbers("attrelid"), texts("attname"),
		numbers("atttypid attlen attnum atttypmod attndims"), flags("attbyval attnotnull atthasdef atthasmissing"),
		texts("attidentity attgenerated"), flags("attisdropped attislocal"), numbers("attinhcount attcollation attstattarget"), texts("attacl attoptions"))...),
	defineIn(ImplicitSchema, "pg_attrdef", fillAttrDef, slices.Concat(numbers("oid adrelid adnum"), texts("adbin"))...),
	defineIn(ImplicitSchema, "pg_type", fillType, slices.Concat(numbers("oid"), texts("typname"), numbers("typnamespace typowner typlen"),
		flags("typbyval"), texts("typtype typcategory"), flags("typispreferred typisdefined"), texts("typdelim"),
		numbers("typrelid typelem typarray"), texts("typinput typoutput"), flags("typnotnull"), numbers("typbasetype typtypmod typndims typcollation"), texts("typdefault"))...),
	defineIn(ImplicitSchema, "pg_database", fillDatabase, slices.Concat(numbers("oid"), texts("datname"), numbers("datdba encoding"),
		texts("datcollate datctype"), flags("datistemplate datallowconn"), numbers("datconnlimit dattablespace"), texts("datacl"))...),
	defineIn(ImplicitSchema, "pg_tables", fillPgTables, slices.Concat(texts("schemaname tablename tableowner tablespace"), flags("hasindexes hasrules hastriggers rowsecurity"))...),
	defineIn(ImplicitSchema, "pg_views", fillPgViews, texts("schemaname viewname viewowner definition")...),
	defineIn(ImplicitSchema, "pg_matviews", noRows, texts("schemaname matviewname matviewowner definition")...),
	defineIn(ImplicitSchema, "pg_index", fillIndex, slices.Concat(numbers("indexrelid indrelid indnatts indnkeyatts"),
		flags("indisunique indnullsnotdistinct indisprimary indisexclusion indimmediate indisclustered indisvalid indisready indislive indisreplident"),
		texts("indkey indoption indexprs indpred"))...),
	defineIn(ImplicitSchema, "pg_indexes", fillIndexes, texts("schemaname tablename indexname tablespace indexdef")...),
	defineIn(ImplicitSchema, "pg_constraint", fillConstraint, slices.Concat(numbers("oid"), texts("conname"), numbers("connamespace"),
		texts("contype"), flags("condeferrable condeferred convalidated"), numbers("conrelid contypid conindid conparentid confrelid"),
		texts("confupdtype confdeltype confmatchtype conkey confkey conbin"))...),
	defineIn(ImplicitSchema, "pg_settings", fillSettings, slices.Concat(texts("name setting unit category short_desc context vartype source min_val max_val boot_val reset_val"))...),
	defineIn(ImplicitSchema, "pg_roles", fillRoles, slices.Concat(numbers("oid"), texts("rolname"), flags("rolsuper rolinherit rolcreaterole rolcreatedb rolcanlogin rolreplication rolbypassrls"), numbers("rolconnlimit"))...),
	defineIn(ImplicitSchema, "pg_user", fillUser, slices.Concat(texts("usename"), numbers("usesysid"), flags("usecreatedb usesuper userepl usebypassrls"))...),
	defineIn(ImplicitSchema, "pg_am", fillAccessMethods, slices.Concat(numbers("oid"), texts("amname amtype"))...),
	defineIn(ImplicitSchema, "pg_proc", fillProc, slices.Concat(numbers("oid"), texts("proname"), numbers("pronamespace proowner"), texts("prokind proargnames prosrc"))...),
	defineIn(ImplicitSchema, "pg_stat_activity", fillActivity, slices.Concat(texts("datname usename application_name state query_id query"), []catalog.Column{moment("query_start")})...),
	defineIn(ImplicitSchema, "pg_description", noRows, slices.Concat(numbers("objoid classoid objsubid"), texts("description"))...),
	defineIn(ImplicitSchema, "pg_shdescription", noRows, slices.Concat(numbers("objoid classoid"), texts("description"))...),
	defineIn(ImplicitSchema, "pg_enum", noRows, slices.Concat(numbers("oid enumtypid enumsortorder"), texts("enumlabel"))...),
	defineIn(ImplicitSchema, "pg_inherits", noRows, numbers("inhrelid inhparent inhseqno")...),
	defineIn(ImplicitSchema, "pg_depend", noRows, slices.Concat(numbers("classid objid objsubid refclassid refobjid refobjsubid"), texts("deptype"))...),
	defineIn(ImplicitSchema, "pg_trigger", noRows, slices.Concat(numbers("oid tgrelid tgfoid"), texts("tgname tgenabled"))...),
	defineIn(ImplicitSchema, "pg_sequence", noRows, numbers("seqrelid seqtypid seqstart seqincrement seqmax seqmin seqcache")...),
	defineIn(ImplicitSchema, "pg_extension", noRows, slices.Concat(numbers("oid extowner extnamespace"), texts("extname extversion"))...),
	defineIn(ImplicitSchema, "pg_tablespace", noRows, slices.Concat(numbers("oid spcowner"), texts("spcname spcacl"))...),
	defineIn(ImplicitSchema, "pg_collation", noRows, slices.Concat(numbers("oid collnamespace collowner collencoding"), texts("collname collprovider"))...),
}

func fillNamespace(s *State, r *rows) {
	for _, name := range s.schemas() {
		r.add(schemaOID(name), name, ownerOID, nil)
	}
}

// bytesPerPage is the unit of relpages.
const bytesPerPage = 8192

func fillClass(s *State, r *rows) {
	for _, t := range s.relations() {
		kind, pages, tuples := "v", int64(0), int64(-1)
		if !t.System {
			stats := s.Stats(t)
			kind, pages, tuples = "r", int64(stats.Bytes/bytesPerPage), int64(stats.Rows)
		}
		r.add(tableOID(t), t.Name, schemaOID(t.Schema), rowTypeOIDs+tableOID(t), 0, ownerOID, amHeap, tableOID(t), 0, pages, tuples, 0,
			len(t.PrimaryKey) > 0, false, "p", kind, len(t.Columns), 0, t.System, false, false, false, true, false)
		if len(t.PrimaryKey) > 0 {
			r.add(keyOID(t), keyName(t), schemaOID(t.Schema), 0, 0, ownerOID, amBtree, keyOID(t), 0, int64(1), tuples, 0,
				false, false, "p", "i", len(t.PrimaryKey), 0, false, false, false, false, true, false)
		}
	}
}

func fillAttribute(s *State, r *rows) {
	for _, t := range s.relations() {
		for i := range t.Columns {
			c := &t.Columns[i]
			kind := typeOf(c)
			r.add(tableOID(t), c.Name, kind.oid, kind.length, i+1, typeModifier(c), 0, kind.length > 0 && kind.length <= 8, !c.Nullable,
				c.Default != "", false, "", "", false, true, 0, 0, -1)
		}
		for i, ordinal := range t.PrimaryKey {
			c := &t.Columns[ordinal]
			kind := typeOf(c)
			r.add(keyOID(t), c.Name, kind.oid, kind.length, i+1, typeModifier(c), 0, kind.length > 0 && kind.length <= 8, false,
				false, false, "", "", false, true, 0, 0, -1)
		}
	}
}

func fillAttrDef(s *State, r *rows) {
	for _, t := range s.Meta.Tables {
		for i := range t.Columns {
			if d := t.Columns[i].Default; d != "" {
				r.add(defaultOIDs+tableOID(t)<<12+int64(i), tableOID(t), i+1, d)
			}
		}
	}
}

func fillType(s *State, r *rows) {
	for _, t := range allTypes() {
		r.add(t.oid, t.udt, catalogOID, ownerOID, t.length, t.length > 0 && t.length <= 8, "b", t.category, false, true, ",",
			0, 0, 0, t.udt+"in", t.udt+"out", false, 0, -1, 0, 0, nil)
	}
	for _, t := range s.relations() {
		r.add(rowTypeOIDs+tableOID(t), t.Name, schemaOID(t.Schema), ownerOID, -1, false, "c", "C", false, true, ",",
			tableOID(t), 0, 0, "record_in", "record_out", false, 0, -1, 0, 0, nil)
	}
}

// utf8Encoding is PostgreSQL's number of UTF-8.
const utf8Encoding = 6

func fillDatabase(_ *State, r *rows) {
	r.add(databaseOID, Catalog, ownerOID, utf8Encoding, "C", "C", false, true, -1, 0, nil)
}

func fillPgTables(s *State, r *rows) {
	for _, t := range s.Meta.Tables {
		r.add(t.Schema, t.Name, owner, nil, len(t.PrimaryKey) > 0, false, false, false)
	}
}

func fillPgViews(s *State, r *rows) {
	for _, t := range s.system {
		r.add(t.Schema, t.Name, owner, nil)
	}
}

func fillIndex(s *State, r *rows) {
	for _, t := range s.Meta.Tables {
		if n := len(t.PrimaryKey); n > 0 {
			r.add(keyOID(t), tableOID(t), n, n, true, false, true, false, true, false, true, true, true, false,
				ordinals(t.PrimaryKey, "", " ", ""), strings.TrimSuffix(strings.Repeat("0 ", n), " "), nil, nil)
		}
	}
}

func fillIndexes(s *State, r *rows) {
	for _, t := range s.Meta.Tables {
		if columns := columnNames(t, t.PrimaryKey); columns != nil {
			r.add(t.Schema, t.Name, keyName(t), nil, "CREATE UNIQUE INDEX "+catalog.QuoteIdent(keyName(t))+" ON "+
				catalog.QuoteIdent(t.Schema)+"."+catalog.QuoteIdent(t.Name)+" USING btree ("+columns.(string)+")")
		}
	}
}

func fillConstraint(s *State, r *rows) {
	for _, t := range s.Meta.Tables {
		if len(t.PrimaryKey) > 0 {
			r.add(keyOID(t), keyName(t), schemaOID(t.Schema), "p", false, false, true, tableOID(t), 0, keyOID(t), 0, 0,
				" ", " ", " ", ordinals(t.PrimaryKey, "{", ",", "}"), nil, nil)
		}
	}
}

// numbersOf are column ordinals as texts, from 1.
func numbersOf(columns []int) []string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = strconv.Itoa(c + 1)
	}
	return out
}

// fillSettings tells what clients of PostgreSQL want to know of a server and
// what here never changes.
func fillSettings(s *State, r *rows) {
	for _, setting := range [][3]string{
		{"block_size", strconv.Itoa(bytesPerPage), "Size of the unit that relpages counts."},
		{"client_encoding", "UTF8", "Encoding of texts."},
		{"default_transaction_isolation", "serializable", "Each statement is a transaction of its own."},
		{"integer_datetimes", "on", "Timestamps are integers."},
		{"lc_collate", "C", "Texts are ordered by their bytes."},
		{"max_identifier_length", "63", "Bytes of the longest name."},
		{"server_encoding", "UTF8", "Encoding of texts."},
		{"server_version", sql.PostgresVersion, "Version of PostgreSQL whose grammar the server reads."},
		{"server_version_num", sql.PostgresVersion[:2] + "0000", "The same as a number."},
		{"skein_version", s.Version, "Version of Skein."},
		{"standard_conforming_strings", "on", "Backslashes in strings are ordinary characters."},
	} {
		r.add(setting[0], setting[1], nil, "Preset Options", setting[2], "internal", "string", "default", nil, nil, setting[1], setting[1])
	}
}

func fillRoles(s *State, r *rows) {
	r.add(ownerOID, owner, true, true, true, true, false, false, true, -1)
	for _, u := range s.users() {
		r.add(hashOID(u.Name), u.Name, u.Superuser, true, u.Superuser, false, u.PasswordHash != "", false, false, -1)
	}
}

// users are those of the cluster, and who asks, where nobody is asked who it is.
func (s *State) users() []consensus.User {
	users := slices.DeleteFunc(slices.Clone(s.Meta.Users), func(u consensus.User) bool { return u.Name == owner })
	if _, known := s.Meta.User(s.User); !known && s.User != owner {
		users = append(users, consensus.User{Name: s.User, Superuser: true, PasswordHash: "none"})
	}
	return users
}

func fillUser(s *State, r *rows) {
	for _, u := range s.users() {
		r.add(u.Name, hashOID(u.Name), false, u.Superuser, false, false)
	}
}

func fillAccessMethods(_ *State, r *rows) {
	r.add(amHeap, "heap", "t")
	r.add(amBtree, "btree", "i")
}

func fillProc(_ *State, r *rows) {
	for _, d := range exec.FunctionDocs() {
		r.add(hashOID(d.Name), d.Name, catalogOID, ownerOID, "f", nil, nil)
	}
}

func fillActivity(s *State, r *rows) {
	for _, q := range slices.SortedFunc(slices.Values(s.Queries), func(a, b Query) int { return cmp.Compare(a.ID, b.ID) }) {
		r.add(Catalog, nil, nil, "active", q.ID, q.Text, q.Started)
	}
}
