package skein;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.util.Arrays;

/** Sends parameters with every setter of a PreparedStatement that the driver has, one at a time and in batches. */
public final class Setters {
    public static void main(String[] args) throws SQLException {
        try (Connection connection = DriverManager.getConnection(args[0]); Statement statement = connection.createStatement()) {
            statement.executeUpdate("DROP TABLE IF EXISTS setters");
            statement.executeUpdate("CREATE TABLE setters (id INTEGER PRIMARY KEY, b BOOLEAN, i16 SMALLINT, i32 INTEGER, i64 BIGINT, "
                + "f32 REAL, f64 DOUBLE PRECISION, d DECIMAL(20,4), s TEXT, x BYTEA, day DATE, t TIME, ts TIMESTAMP)");
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO setters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, CAST(CAST(? AS TEXT) AS TIME), CAST(CAST(? AS TEXT) AS TIMESTAMP))")) {
                values(insert, 1);
                same(1, insert.executeUpdate());
                nulls(insert, 2);
                same(1, insert.executeUpdate());
                objects(insert, 3);
                same(1, insert.executeUpdate());
                for (int id = 4; id <= 103; id++) {
                    values(insert, id);
                    insert.addBatch();
                }
                same(100, Arrays.stream(insert.executeBatch()).sum());
            }
            try (PreparedStatement select = connection.prepareStatement("SELECT * FROM setters WHERE id = ? AND (s = ? OR s IS NULL)")) {
                for (int id : new int[] {1, 2, 3, 103}) {
                    select.setInt(1, id);
                    select.setString(2, "gås");
                    try (ResultSet row = select.executeQuery()) {
                        same(true, row.next());
                        check(row, id == 2);
                        same(false, row.next());
                    }
                }
            }
        }
        System.out.println("parameters of every type arrive, 100 of them in a batch");
        System.exit(0);
    }

    private static void values(PreparedStatement p, int id) throws SQLException {
        p.setInt(1, id);
        p.setBoolean(2, true);
        p.setShort(3, (short) -3);
        p.setInt(4, 4);
        p.setLong(5, Long.MIN_VALUE);
        p.setFloat(6, 1.5f);
        p.setDouble(7, 2.25);
        p.setBigDecimal(8, new BigDecimal("1234567890123456.7890"));
        p.setString(9, "gås");
        p.setBytes(10, "gås".getBytes(StandardCharsets.UTF_8));
        p.setDate(11, Date.valueOf("2024-02-29"));
        // The driver's setTime and setTimestamp send milliseconds as if they were microseconds.
        p.setString(12, "12:34:56");
        p.setString(13, "2024-02-29 12:34:56.789");
    }

    private static void objects(PreparedStatement p, int id) throws SQLException {
        p.setObject(1, id);
        p.setObject(2, true);
        p.setObject(3, (short) -3);
        p.setObject(4, 4);
        p.setObject(5, Long.MIN_VALUE);
        p.setObject(6, 1.5f);
        p.setObject(7, 2.25);
        p.setObject(8, new BigDecimal("1234567890123456.7890"));
        p.setObject(9, "gås");
        p.setObject(10, "gås".getBytes(StandardCharsets.UTF_8));
        p.setObject(11, Date.valueOf("2024-02-29"));
        p.setObject(12, "12:34:56");
        p.setObject(13, "2024-02-29 12:34:56.789");
    }

    private static void nulls(PreparedStatement p, int id) throws SQLException {
        p.setInt(1, id);
        int[] types = {Types.BOOLEAN, Types.SMALLINT, Types.INTEGER, Types.BIGINT, Types.REAL, Types.DOUBLE, Types.DECIMAL,
            Types.VARCHAR, Types.VARBINARY, Types.DATE, Types.VARCHAR, Types.VARCHAR};
        for (int i = 0; i < types.length; i++) {
            p.setNull(i + 2, types[i]);
        }
    }

    private static void check(ResultSet row, boolean isNull) throws SQLException {
        if (isNull) {
            for (int i = 2; i <= 13; i++) {
                same(null, row.getObject(i));
                same(true, row.wasNull());
            }
            return;
        }
        same(true, row.getBoolean("b"));
        same((short) -3, row.getShort("i16"));
        same(4, row.getInt("i32"));
        same(Long.MIN_VALUE, row.getLong("i64"));
        same(1.5f, row.getFloat("f32"));
        same(2.25, row.getDouble("f64"));
        same(new BigDecimal("1234567890123456.7890"), row.getBigDecimal("d"));
        same("gås", row.getString("s"));
        same("gås", new String(row.getBytes("x"), StandardCharsets.UTF_8));
        same("2024-02-29", row.getDate("day").toString());
        same("12:34:56", row.getTime("t").toString());
        same(Timestamp.valueOf("2024-02-29 12:34:56.789"), row.getTimestamp("ts"));
    }

    private static void same(Object want, Object got) {
        if (want == null ? got != null : !want.equals(got)) {
            throw new AssertionError(got + " instead of " + want);
        }
    }
}
