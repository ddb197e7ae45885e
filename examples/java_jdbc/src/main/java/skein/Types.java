package skein;

import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Objects;

/** Reads edge values and what JDBC tells of types, columns, tables and keys. */
public final class Types {
  private static int wrong;

  public static void main(String[] args) throws Exception {
    try (Connection connection = DriverManager.getConnection(args[0]);
        Statement statement = connection.createStatement()) {
      statement.executeUpdate("DROP TABLE IF EXISTS types_java");
      statement.executeUpdate(
          "CREATE TABLE types_java (id BIGINT PRIMARY KEY, small SMALLINT, whole INTEGER, word VARCHAR(20), amount DECIMAL(38,4) NOT NULL,"
              + " ratio DOUBLE PRECISION, flag BOOLEAN, bytes BYTEA)");
      values(connection);
      columns(statement);
      database(connection.getMetaData());
    }
    if (wrong > 0) {
      System.exit(1);
    }
    System.out.println("JDBC sees the values and what they are");
  }

  private static void values(Connection connection) throws SQLException {
    BigDecimal largest = new BigDecimal("9".repeat(34) + ".9999");
    try (PreparedStatement insert =
        connection.prepareStatement("INSERT INTO types_java VALUES (?, ?, ?, ?, ?, ?, ?, ?)")) {
      insert.setLong(1, Long.MIN_VALUE);
      insert.setShort(2, Short.MIN_VALUE);
      insert.setInt(3, Integer.MAX_VALUE);
      insert.setString(4, "Ünïcödé 🪿");
      insert.setBigDecimal(5, largest);
      insert.setDouble(6, Double.MAX_VALUE);
      insert.setBoolean(7, true);
      insert.setBytes(8, new byte[] {0, -1});
      same("rows inserted", 1, insert.executeUpdate());
    }
    try (Statement statement = connection.createStatement()) {
      same(
          "rows inserted",
          1,
          statement.executeUpdate(
              "INSERT INTO types_java VALUES (9223372036854775807, NULL, NULL, NULL, 0, NULL, NULL, NULL)"));
      try (ResultSet rows = statement.executeQuery("SELECT * FROM types_java ORDER BY id")) {
        rows.next();
        same("id", Long.MIN_VALUE, rows.getLong(1));
        same("small", Short.MIN_VALUE, rows.getShort(2));
        same("whole", Integer.MAX_VALUE, rows.getInt(3));
        same("word", "Ünïcödé 🪿", rows.getString(4));
        same("amount", largest, rows.getBigDecimal(5));
        same("ratio", Double.MAX_VALUE, rows.getDouble(6));
        same("flag", true, rows.getBoolean(7));
        same("bytes", (byte) -1, rows.getBytes(8)[1]);
        rows.next();
        same("id", Long.MAX_VALUE, rows.getLong(1));
        for (int i : new int[] {2, 3, 4, 6, 7, 8}) {
          same("NULL in column " + i, null, rows.getObject(i));
        }
      }
    }
  }

  private static void columns(Statement statement) throws SQLException {
    try (ResultSet rows = statement.executeQuery("SELECT id, word, amount, amount - 1 AS more FROM types_java")) {
      ResultSetMetaData md = rows.getMetaData();
      same("columns", 4, md.getColumnCount());
      same("table of id", "types_java", md.getTableName(1));
      same("schema of id", "public", md.getSchemaName(1));
      same("catalog of id", "skein", md.getCatalogName(1));
      same("type of id", java.sql.Types.BIGINT, md.getColumnType(1));
      same("nullability of id", ResultSetMetaData.columnNoNulls, md.isNullable(1));
      same("precision of word", 20, md.getPrecision(2));
      same("word is case sensitive", true, md.isCaseSensitive(2));
      same("precision of amount", 38, md.getPrecision(3));
      same("scale of amount", 4, md.getScale(3));
      same("amount is searchable", true, md.isSearchable(3));
      same("more is read-only", true, md.isReadOnly(4));
      same("table of more", "", Objects.toString(md.getTableName(4), ""));
    }
  }

  private static void database(DatabaseMetaData md) throws SQLException {
    same("product", "Skein", md.getDatabaseProductName());
    same("transactions", false, md.supportsTransactions());
    same("outer joins", true, md.supportsFullOuterJoins());
    same("correlated subqueries", true, md.supportsCorrelatedSubqueries());
    same("UNION ALL", true, md.supportsUnionAll());
    same("columns of a table", 1600, md.getMaxColumnsInTable());
    same("GROUP BY", true, md.supportsGroupByBeyondSelect());
    same("quote", "\"", md.getIdentifierQuoteString());
    same("ABS is a function", true, md.getNumericFunctions().contains("abs"));
    same("from INTEGER to VARCHAR", true, md.supportsConvert(java.sql.Types.INTEGER, java.sql.Types.VARCHAR));
    try (ResultSet rows = md.getColumns("skein", "public", "types_java", "%")) {
      String names = "";
      while (rows.next()) {
        names += rows.getString("COLUMN_NAME") + " ";
      }
      same("columns", "id small whole word amount ratio flag bytes ", names);
    }
    try (ResultSet rows = md.getPrimaryKeys("skein", "public", "types_java")) {
      rows.next();
      same("key", "id", rows.getString("COLUMN_NAME"));
    }
    try (ResultSet rows = md.getTables(null, "information_schema", "%", null)) {
      same("information_schema has tables", true, rows.next());
    }
    try (ResultSet rows = md.getImportedKeys("skein", "public", "types_java")) {
      same("foreign keys", false, rows.next());
    }
  }

  private static void same(String what, Object want, Object got) {
    if (!Objects.equals(want, got)) {
      System.out.println(what + ": " + got + ", not " + want);
      wrong++;
    }
  }
}
