package skein;

import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.util.List;

/** Loads birds.csv into Skein and queries it, with the Arrow Flight SQL JDBC driver. */
public final class Birds {
  private static final String INSERT = "INSERT INTO birds_java VALUES (?, ?, ?, ?, ?)";
  private static final String QUERY =
      "SELECT species, count(*), max(mass_kg) FROM birds_java GROUP BY species ORDER BY species";

  public static void main(String[] args) throws Exception {
    List<String> lines = Files.readAllLines(Path.of(args[1]));
    try (Connection connection = DriverManager.getConnection(args[0])) {
      try (Statement statement = connection.createStatement()) {
        statement.executeUpdate("DROP TABLE IF EXISTS birds_java");
        statement.executeUpdate(
            "CREATE TABLE birds_java"
                + " (id BIGINT PRIMARY KEY, name TEXT, species TEXT, ringed DATE, mass_kg DECIMAL(6,2))");
      }
      load(connection, lines.subList(1, lines.size()));
      try (Statement statement = connection.createStatement();
          ResultSet rows = statement.executeQuery(QUERY)) {
        while (rows.next()) {
          System.out.println(rows.getString(1) + " " + rows.getLong(2) + " " + rows.getBigDecimal(3));
        }
      }
    }
  }

  private static void load(Connection connection, List<String> lines) throws SQLException {
    try (PreparedStatement insert = connection.prepareStatement(INSERT)) {
      for (String line : lines) {
        String[] fields = line.split(",", -1);
        insert.setLong(1, Long.parseLong(fields[0]));
        insert.setString(2, fields[1]);
        insert.setString(3, fields[2]);
        insert.setDate(4, Date.valueOf(fields[3]));
        if (fields[4].isEmpty()) {
          insert.setNull(5, Types.DECIMAL);
        } else {
          insert.setBigDecimal(5, new BigDecimal(fields[4]));
        }
        insert.addBatch();
      }
      insert.executeBatch();
    }
  }
}
