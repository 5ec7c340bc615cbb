import java.math.BigDecimal;
import java.sql.Array;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.UUID;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

/**
 * pgjdbc against a running server: metadata, batches, statements prepared on the server, generated keys, types,
 * cursors with a fetch size, COPY, errors.
 *
 * <pre>java -cp postgresql.jar JdbcClient.java HOST PORT</pre>
 *
 * Every test gets a connection and makes tables of its own. All tests run even if one fails; the exit status is 0
 * only if none did.
 */
public class JdbcClient {
  interface Test {
    void run(Connection c) throws Exception;
  }

  interface Action {
    void run() throws Exception;
  }

  static String url;

  static void expect(Object wanted, Object actual) {
    if (!Objects.deepEquals(wanted, actual)) {
      throw new AssertionError("expected " + shown(wanted) + ", got " + shown(actual));
    }
  }

  static String shown(Object value) {
    return value instanceof Object[] array ? Arrays.deepToString(array) : String.valueOf(value);
  }

  static SQLException fails(String state, Action action) throws Exception {
    try {
      action.run();
    } catch (SQLException error) {
      if (!state.equals(error.getSQLState())) {
        throw new AssertionError("expected " + state + ", got " + error.getSQLState(), error);
      }
      return error;
    }
    throw new AssertionError("expected an error " + state + ", got none");
  }

  static void run(Connection c, String... statements) throws SQLException {
    try (Statement s = c.createStatement()) {
      for (String sql : statements) {
        s.execute(sql);
      }
    }
  }

  /** The rows of a result, each as its named columns joined by a bar. */
  static List<String> rows(ResultSet result, String... columns) throws SQLException {
    List<String> rows = new ArrayList<>();
    while (result.next()) {
      List<String> values = new ArrayList<>();
      for (String column : columns) {
        values.add(result.getString(column));
      }
      rows.add(String.join("|", values.stream().map(String::valueOf).toList()));
    }
    return rows;
  }

  static void metadata(Connection c) throws Exception {
    run(c, "DROP TABLE IF EXISTS jdbc_child", "DROP TABLE IF EXISTS jdbc_parent",
        "CREATE TABLE jdbc_parent (id serial PRIMARY KEY, code varchar(10) NOT NULL UNIQUE, amount numeric(8,2)"
            + " DEFAULT 1.5, at timestamptz, tags text[])",
        "CREATE TABLE jdbc_child (a int, b int, parent int NOT NULL REFERENCES jdbc_parent (id) ON DELETE CASCADE,"
            + " note text, PRIMARY KEY (a, b))",
        "CREATE INDEX jdbc_child_note ON jdbc_child (note, parent)");
    DatabaseMetaData m = c.getMetaData();
    expect("PostgreSQL", m.getDatabaseProductName());
    expect(15, m.getDatabaseMajorVersion());
    expect(List.of("jdbc_child|TABLE", "jdbc_parent|TABLE"),
        rows(m.getTables(null, "public", "jdbc\\_%", new String[] {"TABLE"}), "TABLE_NAME", "TABLE_TYPE"));
    expect(List.of("id|4|serial|10|0|nextval('jdbc_parent_id_seq'::regclass)|YES|1",
            "code|12|varchar|10|0|null|NO|2", "amount|2|numeric|8|1|1.5|NO|3", "at|93|timestamptz|35|1|null|NO|4",
            "tags|2003|_text|2147483647|1|null|NO|5"),
        rows(m.getColumns(null, "public", "jdbc_parent", "%"), "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME",
            "COLUMN_SIZE", "NULLABLE", "COLUMN_DEF", "IS_AUTOINCREMENT", "ORDINAL_POSITION"));
    expect(List.of("jdbc_parent|id|jdbc_child|parent|1|3|0|jdbc_child_parent_fkey|jdbc_parent_pkey"),
        rows(m.getImportedKeys(null, "public", "jdbc_child"), "PKTABLE_NAME", "PKCOLUMN_NAME", "FKTABLE_NAME",
            "FKCOLUMN_NAME", "KEY_SEQ", "UPDATE_RULE", "DELETE_RULE", "FK_NAME", "PK_NAME"));
    expect(List.of("jdbc_child|parent"), rows(m.getExportedKeys(null, "public", "jdbc_parent"), "FKTABLE_NAME",
        "FKCOLUMN_NAME"));
    expect(List.of("public"), rows(m.getSchemas(null, "public"), "TABLE_SCHEM"));
    try (Statement s = c.createStatement(); ResultSet r = s.executeQuery("SELECT code AS x, id FROM jdbc_parent")) {
      expect("varchar", r.getMetaData().getColumnTypeName(1));
      expect("jdbc_parent", r.getMetaData().getTableName(1));
      expect(true, r.getMetaData().isAutoIncrement(2));
      expect(ResultSet.TYPE_FORWARD_ONLY, r.getType());
    }
    run(c, "DROP TABLE jdbc_child", "DROP TABLE jdbc_parent");
  }

  static void types(Connection c) throws Exception {
    run(c, "DROP TABLE IF EXISTS jdbc_types",
        "CREATE TABLE jdbc_types (id int PRIMARY KEY, s smallint, l bigint, r real, d double precision,"
            + " n numeric(30,10), b boolean, t text, v varchar(20), y bytea, da date, ti time, ts timestamp,"
            + " tz timestamptz, u uuid, j jsonb, ia int[], ta text[])");
    UUID uuid = UUID.fromString("00112233-4455-6677-8899-aabbccddeeff");
    BigDecimal number = new BigDecimal("12345678901234567890.0123456789");
    OffsetDateTime moment = OffsetDateTime.of(2024, 2, 29, 12, 30, 1, 5000, ZoneOffset.UTC);
    byte[] bytes = {0, (byte) 255, 92, 39};
    try (PreparedStatement p = c.prepareStatement(
        "INSERT INTO jdbc_types VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?::jsonb,?,?)")) {
      // More often than the five times after which the driver prepares on the server and goes binary.
      for (int id = 0; id < 12; id++) {
        int at = 1;
        p.setInt(at++, id);
        p.setShort(at++, (short) -7);
        p.setLong(at++, Long.MIN_VALUE);
        p.setFloat(at++, 1.5f);
        p.setDouble(at++, 0.1);
        p.setBigDecimal(at++, number);
        p.setBoolean(at++, true);
        p.setString(at++, "grüße ' \\");
        p.setString(at++, null);
        p.setBytes(at++, bytes);
        p.setObject(at++, LocalDate.of(2024, 2, 29));
        p.setObject(at++, LocalTime.of(23, 59, 59, 999_999_000));
        p.setObject(at++, LocalDateTime.of(2024, 2, 29, 12, 30, 1, 5000));
        p.setObject(at++, moment);
        p.setObject(at++, uuid);
        p.setString(at++, "{\"a\": [1, null]}");
        p.setArray(at++, c.createArrayOf("int4", new Integer[] {1, null, 3}));
        p.setArray(at++, c.createArrayOf("text", new String[] {"a", null, "b \"c\" ,"}));
        expect(1, p.executeUpdate());
      }
    }
    try (PreparedStatement p = c.prepareStatement("SELECT * FROM jdbc_types WHERE id = ?")) {
      for (int id = 0; id < 12; id++) {
        p.setInt(1, id);
        try (ResultSet r = p.executeQuery()) {
          expect(true, r.next());
          expect(id, r.getInt("id"));
          expect((short) -7, r.getShort("s"));
          expect(Long.MIN_VALUE, r.getLong("l"));
          expect(1.5f, r.getFloat("r"));
          expect(0.1, r.getDouble("d"));
          expect(number, r.getBigDecimal("n"));
          expect(true, r.getBoolean("b"));
          expect("grüße ' \\", r.getString("t"));
          expect(null, r.getString("v"));
          expect(true, Arrays.equals(bytes, r.getBytes("y")));
          expect(LocalDate.of(2024, 2, 29), r.getObject("da", LocalDate.class));
          expect(LocalTime.of(23, 59, 59, 999_999_000), r.getObject("ti", LocalTime.class));
          expect(LocalDateTime.of(2024, 2, 29, 12, 30, 1, 5000), r.getObject("ts", LocalDateTime.class));
          expect(moment.toInstant(), r.getObject("tz", OffsetDateTime.class).toInstant());
          expect(uuid, r.getObject("u"));
          expect("{\"a\": [1, null]}", r.getString("j"));
          expect(new Integer[] {1, null, 3}, r.getArray("ia").getArray());
          expect(new String[] {"a", null, "b \"c\" ,"}, r.getArray("ta").getArray());
        }
      }
    }
    try (PreparedStatement p = c.prepareStatement("SELECT count(*) FROM jdbc_types WHERE id = ANY(?)")) {
      for (int n = 0; n < 8; n++) {
        Array wanted = c.createArrayOf("int4", new Integer[] {1, 2, 99});
        p.setArray(1, wanted);
        try (ResultSet r = p.executeQuery()) {
          r.next();
          expect(2L, r.getLong(1));
        }
      }
    }
    run(c, "DROP TABLE jdbc_types");
  }

  static void timeZones(Connection c) throws Exception {
    run(c, "SET TIME ZONE 'America/New_York'");
    try (Statement s = c.createStatement();
        ResultSet r = s.executeQuery("SELECT '2024-07-01 12:00:00+00'::timestamptz, now(), current_date")) {
      r.next();
      expect("2024-07-01 08:00:00-04", r.getString(1));
      expect(Timestamp.from(OffsetDateTime.of(2024, 7, 1, 12, 0, 0, 0, ZoneOffset.UTC).toInstant()),
          r.getTimestamp(1));
    }
  }

  static void batches(Connection c) throws Exception {
    run(c, "DROP TABLE IF EXISTS jdbc_batch", "CREATE TABLE jdbc_batch (id serial PRIMARY KEY, n int UNIQUE)");
    try (PreparedStatement p = c.prepareStatement("INSERT INTO jdbc_batch (n) VALUES (?)",
        Statement.RETURN_GENERATED_KEYS)) {
      for (int n = 0; n < 500; n++) {
        p.setInt(1, n);
        p.addBatch();
      }
      int[] counts = p.executeBatch();
      expect(500, counts.length);
      expect(true, Arrays.stream(counts).allMatch(count -> count == 1));
      ResultSet keys = p.getGeneratedKeys();
      int seen = 0;
      while (keys.next()) {
        expect(++seen, keys.getInt("id"));
      }
      expect(500, seen);
    }
    c.setAutoCommit(false);
    try (PreparedStatement p = c.prepareStatement("UPDATE jdbc_batch SET n = n + 1000 WHERE n = ?")) {
      for (int n : new int[] {1, 2, 9999}) {
        p.setInt(1, n);
        p.addBatch();
      }
      expect(true, Arrays.equals(new int[] {1, 1, 0}, p.executeBatch()));
    }
    c.commit();
    try (PreparedStatement p = c.prepareStatement("INSERT INTO jdbc_batch (n) VALUES (?)")) {
      for (int n : new int[] {5000, 1001, 5001}) {
        p.setInt(1, n);
        p.addBatch();
      }
      SQLException error = fails("23505", p::executeBatch);
      expect(true, error instanceof BatchUpdateException);
    }
    c.rollback();
    c.setAutoCommit(true);
    try (Statement s = c.createStatement()) {
      s.addBatch("INSERT INTO jdbc_batch (n) VALUES (7000)");
      s.addBatch("DELETE FROM jdbc_batch WHERE n = 7000");
      expect(true, Arrays.equals(new int[] {1, 1}, s.executeBatch()));
    }
    run(c, "DROP TABLE jdbc_batch");
  }

  static void rewrittenBatches(Connection unused) throws Exception {
    try (Connection c = DriverManager.getConnection(url + "?reWriteBatchedInserts=true", "postgres", "")) {
      run(c, "DROP TABLE IF EXISTS jdbc_batch", "CREATE TABLE jdbc_batch (id int PRIMARY KEY, t text)");
      try (PreparedStatement p = c.prepareStatement("INSERT INTO jdbc_batch VALUES (?, ?)")) {
        for (int n = 0; n < 300; n++) {
          p.setInt(1, n);
          p.setString(2, "t" + n);
          p.addBatch();
        }
        expect(300, p.executeBatch().length);
      }
      try (Statement s = c.createStatement(); ResultSet r = s.executeQuery("SELECT count(*) FROM jdbc_batch")) {
        r.next();
        expect(300, r.getInt(1));
      }
      run(c, "DROP TABLE jdbc_batch");
    }
  }

  static void fetchSize(Connection c) throws Exception {
    c.setAutoCommit(false);
    try (PreparedStatement p = c.prepareStatement("SELECT n FROM generate_series(1, ?) n")) {
      p.setFetchSize(7);
      for (int round = 0; round < 7; round++) {
        p.setInt(1, 100);
        int seen = 0;
        try (ResultSet r = p.executeQuery()) {
          while (r.next()) {
            expect(++seen, r.getInt(1));
          }
        }
        expect(100, seen);
      }
    }
    c.commit();
    try (Statement s = c.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY);
        ResultSet r = s.executeQuery("SELECT n FROM generate_series(1, 10) n")) {
      expect(true, r.last());
      expect(10, r.getRow());
      expect(true, r.absolute(3));
      expect(3, r.getInt(1));
    }
    c.rollback();
  }

  static void transactions(Connection c) throws Exception {
    run(c, "DROP TABLE IF EXISTS jdbc_txn", "CREATE TABLE jdbc_txn (id int PRIMARY KEY)");
    expect(Connection.TRANSACTION_READ_COMMITTED, c.getTransactionIsolation());
    c.setAutoCommit(false);
    c.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
    expect(Connection.TRANSACTION_SERIALIZABLE, c.getTransactionIsolation());
    run(c, "INSERT INTO jdbc_txn VALUES (1)");
    Savepoint savepoint = c.setSavepoint("here");
    fails("23505", () -> run(c, "INSERT INTO jdbc_txn VALUES (1)"));
    fails("25P02", () -> run(c, "SELECT 1"));
    c.rollback(savepoint);
    c.commit();
    c.setReadOnly(true);
    fails("25006", () -> run(c, "INSERT INTO jdbc_txn VALUES (2)"));
    c.rollback();
    c.setReadOnly(false);
    c.setAutoCommit(true);
    run(c, "DROP TABLE jdbc_txn");
  }

  static void changedColumns(Connection c) throws Exception {
    run(c, "DROP TABLE IF EXISTS jdbc_alter", "CREATE TABLE jdbc_alter (id int)", "INSERT INTO jdbc_alter VALUES (1)");
    try (PreparedStatement p = c.prepareStatement("SELECT * FROM jdbc_alter")) {
      for (int round = 0; round < 12; round++) {
        if (round == 8) {
          // The statement is prepared on the server: the driver prepares it again.
          run(c, "ALTER TABLE jdbc_alter ADD COLUMN more text DEFAULT 'x'");
        }
        try (ResultSet r = p.executeQuery()) {
          expect(round < 8 ? 1 : 2, r.getMetaData().getColumnCount());
          expect(true, r.next());
        }
      }
    }
    run(c, "DROP TABLE jdbc_alter");
  }

  static void errors(Connection c) throws Exception {
    run(c, "DROP TABLE IF EXISTS jdbc_err",
        "CREATE TABLE jdbc_err (id int CONSTRAINT err_pk PRIMARY KEY, n int NOT NULL CHECK (n > 0), v varchar(2))");
    fails("42601", () -> run(c, "SELEC 1"));
    fails("42P01", () -> run(c, "SELECT * FROM jdbc_absent"));
    fails("23502", () -> run(c, "INSERT INTO jdbc_err VALUES (1, NULL)"));
    fails("23514", () -> run(c, "INSERT INTO jdbc_err VALUES (1, -1)"));
    fails("22001", () -> run(c, "INSERT INTO jdbc_err VALUES (1, 1, 'abc')"));
    run(c, "INSERT INTO jdbc_err VALUES (1, 1)");
    SQLException error = fails("23505", () -> run(c, "INSERT INTO jdbc_err VALUES (1, 1)"));
    expect("err_pk", ((org.postgresql.util.PSQLException) error).getServerErrorMessage().getConstraint());
    try (Statement s = c.createStatement()) {
      s.setQueryTimeout(1);
      fails("57014", () -> s.execute("SELECT pg_sleep(10)"));
    }
    run(c, "DROP TABLE jdbc_err");
  }

  static void copies(Connection c) throws Exception {
    run(c, "DROP TABLE IF EXISTS jdbc_copy", "CREATE TABLE jdbc_copy (id int, name text)");
    CopyManager copy = c.unwrap(PGConnection.class).getCopyAPI();
    expect(2L, copy.copyIn("COPY jdbc_copy FROM STDIN", new java.io.StringReader("1\ta\n2\t\\N\n")));
    java.io.StringWriter out = new java.io.StringWriter();
    expect(2L, copy.copyOut("COPY (SELECT * FROM jdbc_copy ORDER BY id) TO STDOUT WITH CSV", out));
    expect("1,a\n2,\n", out.toString());
    java.io.ByteArrayOutputStream binary = new java.io.ByteArrayOutputStream();
    expect(2L, copy.copyOut("COPY jdbc_copy TO STDOUT (FORMAT binary)", binary));
    expect(2L, copy.copyIn("COPY jdbc_copy FROM STDIN BINARY",
        new java.io.ByteArrayInputStream(binary.toByteArray())));
    run(c, "DROP TABLE jdbc_copy");
  }

  public static void main(String[] arguments) throws Exception {
    url = "jdbc:postgresql://" + arguments[0] + ":" + arguments[1] + "/postgres";
    String[] names = {"metadata", "types", "timeZones", "batches", "rewrittenBatches", "fetchSize", "transactions", "changedColumns", "errors", "copies"};
    Test[] tests = {JdbcClient::metadata, JdbcClient::types, JdbcClient::timeZones, JdbcClient::batches,
        JdbcClient::rewrittenBatches, JdbcClient::fetchSize, JdbcClient::transactions,
        JdbcClient::changedColumns, JdbcClient::errors, JdbcClient::copies};
    int failed = 0;
    for (int at = 0; at < tests.length; at++) {
      Properties properties = new Properties();
      properties.setProperty("user", "postgres");
      try (Connection c = DriverManager.getConnection(url, properties)) {
        tests[at].run(c);
        System.out.println("test " + names[at] + " ... ok");
      } catch (Exception | AssertionError error) {
        failed++;
        System.out.println("test " + names[at] + " ... FAILED");
        error.printStackTrace(System.out);
      }
    }
    System.out.println((tests.length - failed) + " passed, " + failed + " failed");
    System.exit(failed == 0 ? 0 : 1);
  }
}
