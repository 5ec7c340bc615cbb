#!/usr/bin/env python3
"""SQLAlchemy's ORM against a running server, through psycopg 3, psycopg2, asyncpg and pg8000.

    sqlalchemy_client.py HOST PORT

Needs: pip install sqlalchemy greenlet "psycopg[binary]" psycopg2-binary asyncpg pg8000.
"""

import asyncio
import datetime
import decimal
import sys

from sqlalchemy import (
    JSON,
    CheckConstraint,
    ForeignKey,
    MetaData,
    Numeric,
    String,
    create_engine,
    exc,
    func,
    inspect,
    select,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload

HOST, PORT = sys.argv[1], sys.argv[2]


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "sa_author"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(30), unique=True)
    age: Mapped[int] = mapped_column(CheckConstraint("age >= 0", name="sa_grown"), default=0)
    books: Mapped[list["Book"]] = relationship(back_populates="author", passive_deletes=True)


class Book(Base):
    __tablename__ = "sa_book"
    id: Mapped[int] = mapped_column(primary_key=True)
    author_id: Mapped[int] = mapped_column(ForeignKey("sa_author.id", ondelete="CASCADE"), index=True)
    price: Mapped[decimal.Decimal] = mapped_column(Numeric(8, 2))
    sold: Mapped[datetime.datetime | None]
    details: Mapped[dict | None] = mapped_column(JSONB)
    written: Mapped[list | None] = mapped_column(JSON)
    author: Mapped[Author] = relationship(back_populates="books")


def refused(session, thing):
    session.add(thing)
    try:
        session.commit()
    # pg8000 has no IntegrityError.
    except (exc.IntegrityError, exc.ProgrammingError):
        session.rollback()
        return
    raise AssertionError("accepted")


def work(engine):
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    now = datetime.datetime(2026, 2, 28, 23, 59, 59, 250_000)
    with Session(engine) as session:
        session.add(Author(name="a", books=[Book(price=decimal.Decimal("9.90"), sold=now), Book(price=1)]))
        session.add_all(Author(name=f"n{number}", age=number) for number in range(300))
        session.commit()
        loaded = select(Author).options(selectinload(Author.books))
        author = session.scalars(loaded.where(Author.name == "a")).one()
        assert [book.sold for book in author.books] == [now, None]
        assert session.scalar(select(func.sum(Book.price))) == decimal.Decimal("10.90")
        assert session.scalar(select(func.count()).where(Author.age.in_([1, 2, 3]))) == 3
        joined = select(Author.name, func.count(Book.id)).join(Book).group_by(Author.name)
        assert session.execute(joined).all() == [("a", 2)]
        author.age += 1
        session.commit()
        refused(session, Author(name="a"))
        refused(session, Author(name="b", age=-1))
        refused(session, Book(author_id=99_999, price=1))
        session.delete(author)
        session.commit()
        assert session.scalar(select(func.count()).select_from(Book)) == 0
        with session.begin_nested():
            session.add(Author(name="nested"))
        session.commit()
        documents(session)
    seen = inspect(engine)
    assert {"sa_author", "sa_book"} <= set(seen.get_table_names())
    assert seen.get_pk_constraint("sa_book")["constrained_columns"] == ["id"]
    [key] = seen.get_foreign_keys("sa_book")
    assert (key["referred_table"], key["options"]) == ("sa_author", {"ondelete": "CASCADE"}), key
    assert [check["name"] for check in seen.get_check_constraints("sa_author")] == ["sa_grown"]
    assert [unique["column_names"] for unique in seen.get_unique_constraints("sa_author")] == [["name"]]
    columns = {column["name"]: column for column in seen.get_columns("sa_book")}
    assert isinstance(columns["details"]["type"], JSONB) and columns["details"]["nullable"]
    assert str(columns["price"]["type"]) == "NUMERIC(8, 2)" and not columns["price"]["nullable"]
    assert columns["id"]["default"].startswith("nextval(")
    assert [index["column_names"] for index in seen.get_indexes("sa_book")] == [["author_id"]]
    reflected = MetaData()
    reflected.reflect(engine, only=["sa_author", "sa_book"])
    assert reflected.tables["sa_book"].c.author_id.references(reflected.tables["sa_author"].c.id)
    Base.metadata.drop_all(engine)


def documents(session):
    """Values of json and jsonb, there and back, and conditions on them."""
    author = Author(name="documents")
    details = {"pages": 250, "tags": ["a", "b"], "size": {"height": 21.5, "unit": None}}
    author.books = [Book(price=1, details=details, written=[2024, "x"]), Book(price=2, details={"pages": 9})]
    session.add(author)
    session.commit()
    session.expire_all()
    [first, second] = session.scalars(select(Book).order_by(Book.price)).all()
    assert (first.details, first.written, second.written) == (details, [2024, "x"], None)
    found = select(Book.id).where(Book.details["size"]["height"].as_float() == 21.5)
    assert session.scalars(found).all() == [first.id]
    assert session.scalars(select(Book.id).where(Book.details.contains({"tags": ["b"]}))).all() == [first.id]
    assert session.scalars(select(Book.id).where(Book.details.has_key("size"))).all() == [first.id]
    pages = select(func.sum(Book.details["pages"].as_integer()))
    assert session.scalar(pages) == 259
    tags = session.scalar(select(func.jsonb_agg(Book.details["tags"][0])))
    assert sorted(tags, key=str) == [None, "a"]
    first.details = {**details, "pages": 251}
    session.commit()
    assert session.scalars(select(Book.details["pages"].astext).order_by(Book.price)).all() == ["251", "9"]
    session.delete(author)
    session.commit()


async def work_async():
    engine = create_async_engine(f"postgresql+asyncpg://postgres@{HOST}:{PORT}/postgres")
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with AsyncSession(engine) as session:
        session.add(Author(name="a", books=[Book(price=decimal.Decimal("9.90"))]))
        await session.commit()
        found = await session.scalars(select(Author).options(selectinload(Author.books)))
        assert [len(author.books) for author in found] == [1]
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)
    await engine.dispose()


for driver in ["psycopg", "psycopg2", "pg8000"]:
    work(create_engine(f"postgresql+{driver}://postgres@{HOST}:{PORT}/postgres"))
    print(f"sqlalchemy with {driver}: ORM, documents, reflection")
asyncio.run(work_async())
print("sqlalchemy with asyncpg: ORM")
