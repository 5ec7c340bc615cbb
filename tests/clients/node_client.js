#!/usr/bin/env node
// node-postgres against a running server: types, prepared statements, transactions, batches, cursors, COPY, pool,
// notifications of errors.
//
//     node_client.js HOST PORT
//
// Needs: npm install pg pg-cursor pg-copy-streams; NODE_PATH names the folder with them. Every test gets a client
// and makes tables of its own. All tests run even if one fails; the exit status is 0 only if none did.
'use strict';

const assert = require('node:assert');
const { pipeline } = require('node:stream/promises');
const { Readable } = require('node:stream');
const pg = require('pg');
const Cursor = require('pg-cursor');
const copy = require('pg-copy-streams');

const [host, port] = process.argv.slice(2);
const address = { host, port: Number(port), user: 'postgres', database: 'postgres' };

async function fails(state, work) {
  try {
    await work();
  } catch (error) {
    assert.strictEqual(error.code, state, String(error));
    return error;
  }
  throw new Error(`expected an error ${state}, got none`);
}

const tests = {
  async 'values both ways'(client) {
    const moment = new Date('2024-02-29T12:30:01.005Z');
    const cases = [
      ['int4', 7, 7],
      ['int8', '9007199254740993', '9007199254740993'],
      ['numeric', '12345678901234567890.0123456789', '12345678901234567890.0123456789'],
      ['float8', 0.1, 0.1],
      ['bool', true, true],
      ['text', 'grüße \' " \\', 'grüße \' " \\'],
      ['bytea', Buffer.from([0, 255, 92, 39]), Buffer.from([0, 255, 92, 39])],
      ['timestamptz', moment, moment],
      ['date', '2024-02-29', new Date(2024, 1, 29)],
      ['uuid', '00112233-4455-6677-8899-aabbccddeeff', '00112233-4455-6677-8899-aabbccddeeff'],
      ['json', { a: [1, null, 'x'] }, { a: [1, null, 'x'] }],
      ['jsonb', { a: { b: 1.5 } }, { a: { b: 1.5 } }],
      ['int4[]', [1, null, 3], [1, null, 3]],
      ['int4[]', [[1, 2], [3, 4]], [[1, 2], [3, 4]]],
      ['text[]', ['a', null, 'b "c" \\ ,', ''], ['a', null, 'b "c" \\ ,', '']],
      ['bool[]', [true, false], [true, false]],
      ['float8[]', [1.5], [1.5]],
      ['int4', null, null],
    ];
    for (const [type, value, wanted] of cases) {
      const { rows, fields } = await client.query(`SELECT $1::${type} AS v`, [value]);
      assert.deepStrictEqual(rows[0].v, wanted, type);
      assert.strictEqual(fields[0].name, 'v');
    }
    const { rows } = await client.query("SELECT '1 day 02:03:04.5'::interval AS i");
    assert.deepStrictEqual({ ...rows[0].i }, { days: 1, hours: 2, minutes: 3, seconds: 4, milliseconds: 500 });
  },

  async 'time zones'(client) {
    await client.query("SET TIME ZONE 'America/New_York'");
    const { rows } = await client.query("SELECT '2024-07-01 12:00:00+00'::timestamptz AS t, "
      + "'2024-07-01 12:00:00+00'::timestamptz::text AS s");
    assert.strictEqual(rows[0].t.toISOString(), '2024-07-01T12:00:00.000Z');
    assert.strictEqual(rows[0].s, '2024-07-01 08:00:00-04');
    await client.query('RESET TIME ZONE');
  },

  async 'binary results'(client) {
    const { rows } = await client.query({
      text: 'SELECT 1::int4 AS a, 2::int8 AS b, true AS c, $1::int4 AS e',
      values: [9],
      binary: true,
    });
    assert.deepStrictEqual(rows, [{ a: 1, b: '2', c: true, e: 9 }]);
  },

  async 'named statements'(client) {
    await client.query('CREATE TABLE njs_named (id int PRIMARY KEY, name text)');
    for (let id = 0; id < 20; id += 1) {
      const insert = { name: 'insert', text: 'INSERT INTO njs_named VALUES ($1, $2)', values: [id, `n${id}`] };
      assert.strictEqual((await client.query(insert)).rowCount, 1);
    }
    for (let id = 0; id < 20; id += 1) {
      const select = { name: 'select', text: 'SELECT name FROM njs_named WHERE id = $1', values: [id] };
      assert.deepStrictEqual((await client.query(select)).rows, [{ name: `n${id}` }]);
    }
    const { rows } = await client.query({
      text: 'SELECT id FROM njs_named WHERE id = ANY($1) ORDER BY id', values: [[3, 5, 99]], rowMode: 'array',
    });
    assert.deepStrictEqual(rows, [[3], [5]]);
    await client.query('DROP TABLE njs_named');
  },

  async 'generated keys'(client) {
    await client.query('CREATE TABLE njs_keys (id serial PRIMARY KEY, name text UNIQUE, at timestamptz DEFAULT now())');
    const first = await client.query('INSERT INTO njs_keys (name) VALUES ($1), ($2) RETURNING id, at', ['a', 'b']);
    assert.deepStrictEqual(first.rows.map((row) => row.id), [1, 2]);
    assert.ok(first.rows[0].at instanceof Date);
    const upsert = await client.query('INSERT INTO njs_keys (name) VALUES ($1) ON CONFLICT (name) '
      + 'DO UPDATE SET name = excluded.name RETURNING id', ['b']);
    assert.deepStrictEqual(upsert.rows, [{ id: 2 }]);
    await client.query('DROP TABLE njs_keys');
  },

  async 'several statements in one message'(client) {
    const results = await client.query('CREATE TABLE njs_many (id int); INSERT INTO njs_many VALUES (1), (2); '
      + 'SELECT * FROM njs_many ORDER BY id; DROP TABLE njs_many');
    assert.deepStrictEqual(results.map((result) => result.command), ['CREATE', 'INSERT', 'SELECT', 'DROP']);
    assert.deepStrictEqual(results[2].rows, [{ id: 1 }, { id: 2 }]);
  },

  async 'transactions and errors'(client) {
    await client.query('CREATE TABLE njs_txn (id int PRIMARY KEY, n numeric CHECK (n > 0) NOT NULL)');
    await client.query('BEGIN');
    await client.query('INSERT INTO njs_txn VALUES (1, 1)');
    await client.query('SAVEPOINT s');
    const double = await fails('23505', () => client.query('INSERT INTO njs_txn VALUES (1, 1)'));
    assert.strictEqual(double.constraint, 'njs_txn_pkey');
    assert.strictEqual(double.table, 'njs_txn');
    assert.strictEqual(double.detail, 'Key (id)=(1) already exists.');
    await fails('25P02', () => client.query('SELECT 1'));
    await client.query('ROLLBACK TO s');
    await client.query('COMMIT');
    assert.strictEqual((await fails('23514', () => client.query('INSERT INTO njs_txn VALUES (2, -1)'))).constraint,
      'njs_txn_n_check');
    assert.strictEqual((await fails('23502', () => client.query('INSERT INTO njs_txn VALUES (2)'))).column, 'n');
    assert.strictEqual((await fails('42601', () => client.query('SELEC 1'))).position, '1');
    await fails('42P01', () => client.query('SELECT * FROM njs_absent'));
    await fails('22P02', () => client.query('SELECT $1::int', ['x']));
    await client.query('SET statement_timeout = 50');
    await fails('57014', () => client.query('SELECT pg_sleep(10)'));
    await client.query('RESET statement_timeout');
    await client.query('DROP TABLE njs_txn');
  },

  async 'notices'(client) {
    const heard = [];
    client.on('notice', (notice) => heard.push(notice.message));
    await client.query('DROP TABLE IF EXISTS njs_absent');
    assert.deepStrictEqual(heard, ['table "njs_absent" does not exist, skipping']);
  },

  async 'cursors'(client) {
    const cursor = client.query(new Cursor('SELECT n FROM generate_series(1, $1::int) n', [25]));
    const seen = [];
    for (;;) {
      const rows = await cursor.read(7);
      if (rows.length === 0) break;
      seen.push(...rows.map((row) => row.n));
    }
    await cursor.close();
    assert.deepStrictEqual(seen, Array.from({ length: 25 }, (_, n) => n + 1));
    const early = client.query(new Cursor('SELECT n FROM generate_series(1, 1000) n'));
    assert.strictEqual((await early.read(10)).length, 10);
    await early.close();
    assert.strictEqual((await client.query('SELECT 1 AS one')).rows[0].one, 1);
  },

  async 'COPY both ways'(client) {
    await client.query('CREATE TABLE njs_copy (id int, name text)');
    const lines = Array.from({ length: 5000 }, (_, n) => `${n}\tname ${n}\n`);
    await pipeline(Readable.from(lines), client.query(copy.from('COPY njs_copy FROM STDIN')));
    assert.strictEqual((await client.query('SELECT count(*)::int AS n FROM njs_copy')).rows[0].n, 5000);
    let out = '';
    const stream = client.query(copy.to('COPY (SELECT * FROM njs_copy WHERE id < 3 ORDER BY id) TO STDOUT'));
    for await (const part of stream) out += part;
    assert.strictEqual(out, '0\tname 0\n1\tname 1\n2\tname 2\n');
    await client.query('DROP TABLE njs_copy');
  },

  async 'a pool'() {
    const pool = new pg.Pool({ ...address, max: 4 });
    const answers = await Promise.all(Array.from({ length: 50 }, (_, n) => pool.query('SELECT $1::int AS n', [n])));
    assert.deepStrictEqual(answers.map((answer) => answer.rows[0].n), Array.from({ length: 50 }, (_, n) => n));
    await pool.end();
  },
};

(async () => {
  let failed = 0;
  for (const [name, test] of Object.entries(tests)) {
    const client = new pg.Client(address);
    try {
      await client.connect();
      await test(client);
      console.log(`test ${name} ... ok`);
    } catch (error) {
      failed += 1;
      console.log(`test ${name} ... FAILED`);
      console.log(error.stack || String(error));
    }
    await client.end().catch(() => {});
  }
  console.log(`${Object.keys(tests).length - failed} passed, ${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
})();
