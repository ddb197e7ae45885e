package skein;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/** Cancels a statement whose rows are being read and waits until the server runs it no more. */
public final class Cancel {
  private static final String SLOW =
      "SELECT x.id, y.v FROM cancel_java AS x JOIN cancel_java AS y ON x.v <> y.v";
  private static final String RUNNING = "SELECT count(*) FROM skein.queries WHERE statement = ?";
  private static final long PATIENCE_SECONDS = 30;

  public static void main(String[] args) throws Exception {
    try (Connection connection = DriverManager.getConnection(args[0]);
        Connection watch = DriverManager.getConnection(args[0])) {
      update(connection, "DROP TABLE IF EXISTS cancel_java");
      update(connection, "CREATE TABLE cancel_java (id BIGINT PRIMARY KEY, v TEXT)");
      update(
          connection,
          "INSERT INTO cancel_java SELECT n, 'value ' || n FROM generate_series(1, 50000) AS s(n)");
      try (Statement statement = connection.createStatement()) {
        SQLException failure = cancelWhileReading(statement);
        System.err.println("cancelled: " + failure.getMessage());
        long began = System.nanoTime();
        awaitIdle(watch);
        System.err.printf("idle after %d ms%n", TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began));
      }
      try (Statement statement = connection.createStatement();
          ResultSet rows = statement.executeQuery("SELECT count(*) FROM cancel_java")) {
        rows.next();
        System.out.println("cancelled, then " + rows.getLong(1) + " rows");
      }
      update(connection, "DROP TABLE cancel_java");
    }
  }

  private static void update(Connection connection, String sql) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.executeUpdate(sql);
    }
  }

  /** Reads a result of billions of rows until another thread cancels its statement. */
  private static SQLException cancelWhileReading(Statement statement) throws Exception {
    CountDownLatch reading = new CountDownLatch(1);
    AtomicReference<Throwable> end = new AtomicReference<>();
    Thread reader =
        new Thread(
            () -> {
              try (ResultSet rows = statement.executeQuery(SLOW)) {
                while (rows.next()) {
                  reading.countDown();
                }
              } catch (SQLException failure) {
                end.set(failure);
              }
            });
    reader.setDaemon(true);
    reader.start();
    if (!reading.await(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
      throw new IllegalStateException("the statement brought no rows: " + end.get());
    }
    statement.cancel();
    reader.join(TimeUnit.SECONDS.toMillis(PATIENCE_SECONDS));
    if (reader.isAlive() || !(end.get() instanceof SQLException)) {
      throw new IllegalStateException("the cancelled statement ended with " + end.get());
    }
    return (SQLException) end.get();
  }

  private static void awaitIdle(Connection watch) throws Exception {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
    while (true) {
      try (PreparedStatement running = watch.prepareStatement(RUNNING)) {
        running.setString(1, SLOW);
        try (ResultSet rows = running.executeQuery()) {
          rows.next();
          if (rows.getLong(1) == 0) {
            return;
          }
        }
      }
      if (System.nanoTime() > deadline) {
        throw new IllegalStateException("the server still runs the cancelled statement");
      }
      Thread.sleep(20);
    }
  }

  private Cancel() {}
}
