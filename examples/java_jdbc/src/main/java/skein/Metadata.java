package skein;

import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.util.ArrayList;
import java.util.List;

/** Makes the metadata calls of graphical clients, DBeaver's generic driver above all, and checks the answers. */
public final class Metadata {
    private static int checks;

    public static void main(String[] args) throws SQLException {
        try (Connection connection = DriverManager.getConnection(args[0]); Statement statement = connection.createStatement()) {
            statement.executeUpdate("DROP TABLE IF EXISTS meta_geese");
            statement.executeUpdate("CREATE TABLE meta_geese (ring BIGINT, year INTEGER, name VARCHAR(20) DEFAULT 'none', mass DECIMAL(6,2) NOT NULL, PRIMARY KEY (ring, year))");
            DatabaseMetaData data = connection.getMetaData();
            session(connection, data);
            navigator(data);
            columns(data);
            results(statement);
        }
        System.out.println("what graphical clients ask for is answered");
        System.exit(checks > 0 ? 0 : 1);
    }

    /** What is asked as a connection opens. */
    private static void session(Connection connection, DatabaseMetaData data) throws SQLException {
        same("Skein", data.getDatabaseProductName());
        same(false, data.getDatabaseProductVersion().isEmpty());
        same(false, data.getDriverName().isEmpty());
        same(false, data.isReadOnly());
        same("\"", data.getIdentifierQuoteString());
        same(false, data.supportsTransactions());
        same(true, connection.isValid(5));
        connection.isReadOnly(); // the driver says true, whatever the server is
        same(true, connection.getAutoCommit());
        data.getSQLKeywords();
        data.getNumericFunctions();
        data.getStringFunctions();
        data.getSystemFunctions();
        data.getTimeDateFunctions();
        data.getSearchStringEscape();
        data.getExtraNameCharacters();
        data.storesLowerCaseIdentifiers();
        data.storesUpperCaseIdentifiers();
        data.supportsMixedCaseIdentifiers();
        data.supportsMixedCaseQuotedIdentifiers();
        data.supportsBatchUpdates();
        data.supportsResultSetType(ResultSet.TYPE_FORWARD_ONLY);
        data.getSchemaTerm();
        data.getCatalogTerm();
        data.getProcedureTerm();
        data.getCatalogSeparator();
        data.getMaxStatements();
    }

    /** What the tree of objects is filled with. */
    private static void navigator(DatabaseMetaData data) throws SQLException {
        same(List.of("skein"), column(data.getCatalogs(), "TABLE_CAT"));
        same(true, column(data.getSchemas(), "TABLE_SCHEM").containsAll(List.of("information_schema", "pg_catalog", "public", "skein")));
        same(List.of("public"), column(data.getSchemas("skein", "public"), "TABLE_SCHEM"));
        same(true, column(data.getTableTypes(), "TABLE_TYPE").contains("TABLE"));
        same(List.of("meta_geese"), column(data.getTables("skein", "public", "meta\\_%", null), "TABLE_NAME"));
        same(List.of("meta_geese"), column(data.getTables(null, "public", "meta_geese", new String[] {"TABLE"}), "TABLE_NAME"));
        same(List.of(), column(data.getTables(null, "public", "meta_geese", new String[] {"SYSTEM TABLE"}), "TABLE_NAME"));
    }

    private static void columns(DatabaseMetaData data) throws SQLException {
        same(List.of("ring", "year", "name", "mass"), column(data.getColumns("skein", "public", "meta_geese", "%"), "COLUMN_NAME"));
        try (ResultSet mass = data.getColumns(null, "public", "meta_geese", "mass")) {
            same(true, mass.next());
            same(Types.DECIMAL, mass.getInt("DATA_TYPE"));
            same(2, mass.getInt("DECIMAL_DIGITS"));
            same(4, mass.getInt("ORDINAL_POSITION"));
            same("NO", mass.getString("IS_NULLABLE"));
            same(false, mass.next());
        }
        same(List.of("ring", "year"), column(data.getPrimaryKeys(null, "public", "meta_geese"), "COLUMN_NAME"));
        same(List.of(), column(data.getImportedKeys(null, "public", "meta_geese"), "FKCOLUMN_NAME"));
        same(List.of(), column(data.getExportedKeys(null, "public", "meta_geese"), "FKCOLUMN_NAME"));
        same(List.of(), column(data.getCrossReference(null, "public", "meta_geese", null, "public", "meta_geese"), "FKCOLUMN_NAME"));
        // The driver answers these by itself, with nothing.
        same(List.of(), column(data.getTypeInfo(), "TYPE_NAME"));
        same(List.of(), column(data.getIndexInfo(null, "public", "meta_geese", false, true), "INDEX_NAME"));
        same(List.of(), column(data.getProcedures(null, "public", "%"), "PROCEDURE_NAME"));
        same(List.of(), column(data.getFunctions(null, "public", "%"), "FUNCTION_NAME"));
    }

    /** What a data editor does: a limited read, then a look at the columns. */
    private static void results(Statement statement) throws SQLException {
        statement.executeUpdate("INSERT INTO meta_geese VALUES (1, 2024, 'Akka', 3.5), (2, 2024, NULL, 2.75)");
        statement.setMaxRows(1);
        statement.setFetchSize(100);
        try (ResultSet rows = statement.executeQuery("SELECT * FROM meta_geese ORDER BY ring")) {
            same(4, rows.getMetaData().getColumnCount());
            same("meta_geese", rows.getMetaData().getTableName(1));
            same("mass", rows.getMetaData().getColumnLabel(4));
            int n = 0;
            while (rows.next()) {
                n++;
            }
            same(1, n);
        }
    }

    private static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> values = new ArrayList<>();
        try (rows) {
            while (rows.next()) {
                values.add(rows.getString(name));
            }
        }
        return values;
    }

    private static void same(Object want, Object got) {
        checks++;
        if (!want.equals(got)) {
            throw new AssertionError("check " + checks + ": " + got + " instead of " + want);
        }
    }
}
