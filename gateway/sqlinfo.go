package gateway

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"skein/catalog"
	"skein/exec"
	"skein/sql"
)

// What SqlInfo's bit masks stand for, by the values of Flight SQL's enumerations.
const (
	groupByBits      = 1<<0 | 1<<1               // unrelated to the SELECT list, beyond it
	grammarBits      = 1<<0 | 1<<1               // minimum and core
	ansi92Bits       = 1 << 0                    // entry level
	outerJoinBits    = 1<<1 | 1<<2               // limited and full ones
	subqueryBits     = 1<<0 | 1<<1 | 1<<2 | 1<<3 // in comparisons, EXISTS, IN and quantified
	unionBits        = 1<<0 | 1<<1               // UNION and UNION ALL
	procedureCallBit = 1 << 0                    // where a schema's or a catalog's name may stand
	forwardOnlyBit   = 1 << 1                    // of kinds of result sets
	readOnlyBit      = 1 << 1                    // of kinds of concurrency
	noIsolationBit   = 1 << 0
)

// maxName is the bytes of the longest name: PostgreSQL's parser cuts longer ones.
const maxName = 63

// registerSqlInfo declares what this server can do. Keep it truthful: clients
// switch features on and off by it. Limits of 0 are none, or none known.
func registerSqlInfo(s *sqlService, cfg *Config) error {
	for _, group := range []map[flightsql.SqlInfo]any{serverInfo(cfg), syntaxInfo(), supportInfo(), limitInfo(cfg)} {
		for id, value := range group {
			if err := s.RegisterSqlInfo(id, value); err != nil {
				return err
			}
		}
	}
	return nil
}

func serverInfo(cfg *Config) map[flightsql.SqlInfo]any {
	return map[flightsql.SqlInfo]any{
		flightsql.SqlInfoFlightSqlServerName:                        "Skein",
		flightsql.SqlInfoFlightSqlServerVersion:                     cfg.Version,
		flightsql.SqlInfoFlightSqlServerArrowVersion:                arrow.PkgVersion,
		flightsql.SqlInfoFlightSqlServerReadOnly:                    false,
		flightsql.SqlInfoFlightSqlServerSql:                         true,
		flightsql.SqlInfoFlightSqlServerSubstrait:                   false,
		flightsql.SqlInfoFlightSqlServerSubstraitMinVersion:         "",
		flightsql.SqlInfoFlightSqlServerSubstraitMaxVersion:         "",
		flightsql.SqlInfoFlightSqlServerTransaction:                 int32(flightsql.SqlTransactionNone),
		flightsql.SqlInfoFlightSqlServerCancel:                      true,
		flightsql.SqlInfoFlightSqlServerStatementTimeout:            int32(min(cfg.StatementTimeout.Milliseconds(), 1<<31-1)),
		flightsql.SqlInfoFlightSqlServerTransactionTimeout:          int32(0),
		flightsql.SqlInfoFlightSqlServerBulkIngestion:               true,
		flightsql.SqlInfoFlightSqlServerIngestTransactionsSupported: false,
	}
}

func syntaxInfo() map[flightsql.SqlInfo]any {
	return map[flightsql.SqlInfo]any{
		flightsql.SqlInfoDDLCatalog:                                          false,
		flightsql.SqlInfoDDLSchema:                                           true,
		flightsql.SqlInfoDDLTable:                                            true,
		flightsql.SqlInfoIdentifierCase:                                      int64(flightsql.SqlCaseSensitivityLowerCase),
		flightsql.SqlInfoIdentifierQuoteChar:                                 `"`,
		flightsql.SqlInfoQuotedIdentifierCase:                                int64(flightsql.SqlCaseSensitivityUnknown), // kept as written, which has no value
		flightsql.SqlInfoAllTablesAreASelectable:                             true,
		flightsql.SqlInfoNullOrdering:                                        int64(flightsql.SqlNullOrderingSortHigh),
		flightsql.SqlInfoKeywords:                                            keywords(),
		flightsql.SqlInfoNumericFunctions:                                    functionsNamed(numericFunctions),
		flightsql.SqlInfoStringFunctions:                                     functionsNamed(stringFunctions),
		flightsql.SqlInfoSystemFunctions:                                     functionsNamed(systemFunctions),
		flightsql.SqlInfoDateTimeFunctions:                                   functionsNamed(datetimeFunctions),
		flightsql.SqlInfoSearchStringEscape:                                  `\`,
		flightsql.SqlInfoExtraNameChars:                                      "$",
		flightsql.SqlInfoSupportsColumnAliasing:                              true,
		flightsql.SqlInfoNullPlusNullIsNull:                                  true,
		flightsql.SqlInfoSupportsConvert:                                     conversions(),
		flightsql.SqlInfoSupportsTableCorrelationNames:                       true,
		flightsql.SqlInfoSupportsDifferentTableCorrelationNames:              false,
		flightsql.SqlInfoSupportsExpressionsInOrderBy:                        true,
		flightsql.SqlInfoSupportsOrderByUnrelated:                            true,
		flightsql.SqlInfoSupportedGroupBy:                                    int32(groupByBits),
		flightsql.SqlInfoSupportsLikeEscapeClause:                            true,
		flightsql.SqlInfoSupportsNonNullableColumns:                          true,
		flightsql.SqlInfoSupportedGrammar:                                    int32(grammarBits),
		flightsql.SqlInfoANSI92SupportedLevel:                                int32(ansi92Bits),
		flightsql.SqlInfoSupportsIntegrityEnhancementFacility:                false,
		flightsql.SqlInfoOuterJoinsSupportLevel:                              int32(outerJoinBits),
		flightsql.SqlInfoSchemaTerm:                                          "schema",
		flightsql.SqlInfoProcedureTerm:                                       "procedure",
		flightsql.SqlInfoCatalogTerm:                                         "catalog",
		flightsql.SqlInfoCatalogAtStart:                                      true,
		flightsql.SqlInfoSchemasSupportedActions:                             int32(procedureCallBit),
		flightsql.SqlInfoCatalogsSupportedActions:                            int32(0),
		flightsql.SqlInfoSupportedPositionedCommands:                         int32(0),
		flightsql.SqlInfoSelectForUpdateSupported:                            false,
		flightsql.SqlInfoStoredProceduresSupported:                           false,
		flightsql.SqlInfoSupportedSubqueries:                                 int32(subqueryBits),
		flightsql.SqlInfoCorrelatedSubqueriesSupported:                       true,
		flightsql.SqlInfoSupportedUnions:                                     int32(unionBits),
		flightsql.SqlInfoStoredFunctionsUsingCallSyntaxSupported:             false,
		flightsql.SqlInfoNamedParametersSupported:                            false,
		flightsql.SqlInfoLocatorsUpdateCopy:                                  false,
		flightsql.SqlInfoMaxRowSizeIncludesBlobs:                             true,
		flightsql.SqlInfoSupportedResultSetTypes:                             int32(forwardOnlyBit),
		flightsql.SqlInfoSupportedConcurrenciesForResultSetUnspecified:       int32(readOnlyBit),
		flightsql.SqlInfoSupportedConcurrenciesForResultSetForwardOnly:       int32(readOnlyBit),
		flightsql.SqlInfoSupportedConcurrenciesForResultSetScrollSensitive:   int32(0),
		flightsql.SqlInfoSupportedConcurrenciesForResultSetScrollInsensitive: int32(0),
	}
}

func supportInfo() map[flightsql.SqlInfo]any {
	return map[flightsql.SqlInfo]any{
		flightsql.SqlInfoBatchUpdatesSupported:                 true,
		flightsql.SqlInfoDefaultTransactionIsolation:           int64(0), // none: there are no transactions
		flightsql.SqlInfoTransactionsSupported:                 false,
		flightsql.SqlInfoSupportedTransactionsIsolationlevels:  int32(noIsolationBit),
		flightsql.SqlInfoDataDefinitionCausesTransactionCommit: false,
		flightsql.SqlInfoDataDefinitionsInTransactionsIgnored:  false,
		flightsql.SqlInfoSavePointsSupported:                   false,
	}
}

func limitInfo(cfg *Config) map[flightsql.SqlInfo]any {
	return map[flightsql.SqlInfo]any{
		flightsql.SqlInfoMaxBinaryLiteralLen: int64(0),
		flightsql.SqlInfoMaxCharLiteralLen:   int64(0),
		flightsql.SqlInfoMaxColumnNameLen:    int64(maxName),
		flightsql.SqlInfoMaxColumnsInGroupBy: int64(0),
		flightsql.SqlInfoMaxColumnsInIndex:   int64(0),
		flightsql.SqlInfoMaxColumnsInOrderBy: int64(0),
		flightsql.SqlInfoMaxColumnsInSelect:  int64(0),
		flightsql.SqlInfoMaxColumnsInTable:   int64(sql.MaxColumns),
		flightsql.SqlInfoMaxConnections:      int64(0),
		flightsql.SqlInfoMaxCursorNameLen:    int64(0),
		flightsql.SqlInfoMaxIndexLen:         int64(0),
		flightsql.SqlInfoDBSchemaNameLen:     int64(maxName),
		flightsql.SqlInfoMaxProcedureNameLen: int64(maxName),
		flightsql.SqlInfoMaxCatalogNameLen:   int64(maxName),
		flightsql.SqlInfoMaxRowSize:          int64(0),
		flightsql.SqlInfoMaxStatementLen:     int64(sql.MaxTextBytes),
		flightsql.SqlInfoMaxStatements:       int64(cfg.MaxStatements),
		flightsql.SqlInfoMaxTableNameLen:     int64(maxName),
		flightsql.SqlInfoMaxTablesInSelect:   int64(sql.MaxTableRefs),
		flightsql.SqlInfoMaxUsernameLen:      int64(0),
	}
}

// The functions that JDBC and ODBC know by a name that Skein also uses, or may
// come to use: those it has are told to clients.
var (
	numericFunctions = strings.Fields(`abs acos asin atan atan2 ceiling cos cot degrees exp floor log log10 mod pi power
		radians random round sign sin sqrt tan truncate`)
	stringFunctions = strings.Fields(`ascii bit_length char_length character_length chr concat initcap left length lower lpad ltrim
		octet_length position repeat replace reverse right rpad rtrim substring translate trim upper`)
	systemFunctions   = strings.Fields(`coalesce current_database current_schema current_user nullif version`)
	datetimeFunctions = strings.Fields(`age current_date current_timestamp date_part date_trunc extract localtimestamp
		make_date make_timestamp now to_char to_date to_timestamp`)
	// expressions are those that the grammar knows rather than the registry.
	expressions = strings.Fields(`coalesce current_database current_date current_schema current_timestamp current_user extract
		localtimestamp now nullif position substring trim version`)
)

// functionsNamed are those of some names that SQL texts can call.
func functionsNamed(names []string) []string {
	known := exec.ScalarNames()
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, found := slices.BinarySearch(known, name)
		return !found && !slices.Contains(expressions, name)
	})
}

// sql92Keywords are reserved words that clients expect of any database.
var sql92Keywords = strings.Fields(`all and any as asc authorization both case cast check collate collation column constraint
	create cross current_date current_time current_timestamp current_user default deferrable desc distinct else end except
	false fetch for foreign from full grant group having in initially inner intersect into is join leading left like natural
	not null on only or order outer overlaps primary references right select session_user some table then to trailing true
	union unique user using when where with`)

// keywords are the reserved words beyond SQL-92's.
func keywords() []string {
	return slices.DeleteFunc(sql.ReservedWords(), func(w string) bool { return slices.Contains(sql92Keywords, w) })
}

// convertible are the types of SQL that Flight SQL's conversions know.
var convertible = []struct {
	to flightsql.SqlSupportsConvert
	dt arrow.DataType
}{
	{flightsql.SqlConvertBigInt, catalog.BigInt},
	{flightsql.SqlConvertBit, catalog.Boolean},
	{flightsql.SqlConvertChar, catalog.Text},
	{flightsql.SqlConvertDate, catalog.Date},
	{flightsql.SqlConvertDecimal, catalog.Decimal(catalog.MaxDecimalPrecision, 9)},
	{flightsql.SqlConvertFloat, catalog.Double},
	{flightsql.SqlConvertInteger, catalog.Integer},
	{flightsql.SqlConvertLongVarchar, catalog.Text},
	{flightsql.SqlConvertNumeric, catalog.Decimal(catalog.MaxDecimalPrecision, 9)},
	{flightsql.SqlConvertReal, catalog.Real},
	{flightsql.SqlConvertSmallInt, catalog.SmallInt},
	{flightsql.SqlConvertTime, catalog.Time},
	{flightsql.SqlConvertTimestamp, catalog.Timestamp},
	{flightsql.SqlConvertVarbinary, catalog.Bytea},
	{flightsql.SqlConvertVarchar, catalog.Text},
}

// conversions are the types that CAST takes, and what it makes of each.
func conversions() map[int32][]int32 {
	out := make(map[int32][]int32, len(convertible))
	for _, from := range convertible {
		for _, to := range convertible {
			if exec.CanCast(from.dt, to.dt, true) {
				out[int32(from.to)] = append(out[int32(from.to)], int32(to.to))
			}
		}
	}
	return out
}
