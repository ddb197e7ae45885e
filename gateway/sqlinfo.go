package gateway

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
)

// registerSqlInfo declares what this server can do. Keep it truthful: clients
// switch features on and off by it.
func registerSqlInfo(s *sqlService, version string) error {
	for id, value := range map[flightsql.SqlInfo]any{
		flightsql.SqlInfoFlightSqlServerName:                        "Skein",
		flightsql.SqlInfoFlightSqlServerVersion:                     version,
		flightsql.SqlInfoFlightSqlServerArrowVersion:                arrow.PkgVersion,
		flightsql.SqlInfoFlightSqlServerReadOnly:                    false,
		flightsql.SqlInfoFlightSqlServerSql:                         true,
		flightsql.SqlInfoFlightSqlServerSubstrait:                   false,
		flightsql.SqlInfoFlightSqlServerTransaction:                 int32(flightsql.SqlTransactionNone),
		flightsql.SqlInfoFlightSqlServerCancel:                      true,
		flightsql.SqlInfoFlightSqlServerBulkIngestion:               true,
		flightsql.SqlInfoFlightSqlServerIngestTransactionsSupported: false,
		flightsql.SqlInfoDDLCatalog:                                 false,
		flightsql.SqlInfoDDLSchema:                                  false,
		flightsql.SqlInfoDDLTable:                                   true,
		flightsql.SqlInfoIdentifierCase:                             int64(flightsql.SqlCaseSensitivityLowerCase),
		flightsql.SqlInfoIdentifierQuoteChar:                        `"`,
		flightsql.SqlInfoQuotedIdentifierCase:                       int64(flightsql.SqlCaseSensitivityUnknown),
		flightsql.SqlInfoAllTablesAreASelectable:                    true,
		flightsql.SqlInfoNullOrdering:                               int64(flightsql.SqlNullOrderingSortHigh),
		flightsql.SqlInfoSearchStringEscape:                         `\`,
		flightsql.SqlInfoSupportsColumnAliasing:                     true,
		flightsql.SqlInfoNullPlusNullIsNull:                         true,
		flightsql.SqlInfoSupportsTableCorrelationNames:              true,
		flightsql.SqlInfoSupportsExpressionsInOrderBy:               true,
		flightsql.SqlInfoSupportsOrderByUnrelated:                   true,
		flightsql.SqlInfoSupportsLikeEscapeClause:                   true,
		flightsql.SqlInfoSupportsNonNullableColumns:                 true,
		flightsql.SqlInfoSelectForUpdateSupported:                   false,
		flightsql.SqlInfoStoredProceduresSupported:                  false,
		flightsql.SqlInfoCorrelatedSubqueriesSupported:              false,
		flightsql.SqlInfoSchemaTerm:                                 "schema",
		flightsql.SqlInfoCatalogTerm:                                "catalog",
		flightsql.SqlInfoCatalogAtStart:                             true,
	} {
		if err := s.RegisterSqlInfo(id, value); err != nil {
			return err
		}
	}
	return nil
}
