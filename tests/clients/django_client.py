#!/usr/bin/env python3
"""Django against a running server: migrate with its own auth, admin, contenttypes and sessions, then what
these do: users, groups and permissions, logins, sessions, the admin's log, errors, flush.

    django_client.py HOST PORT

Needs: pip install django "psycopg[binary]".
"""

import datetime
import sys

import django
from django.conf import settings

HOST, PORT = sys.argv[1], sys.argv[2]

settings.configure(
    SECRET_KEY="of a test",
    USE_TZ=True,
    TIME_ZONE="Europe/Zurich",
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "django.contrib.messages",
    ],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": HOST,
            "PORT": PORT,
            "USER": "postgres",
            "NAME": "postgres",
        }
    },
)
django.setup()

from django.contrib.admin.models import ADDITION, LogEntry  # noqa: E402
from django.contrib.auth import authenticate  # noqa: E402
from django.contrib.auth.models import Group, Permission, User  # noqa: E402
from django.contrib.contenttypes.models import ContentType  # noqa: E402
from django.contrib.sessions.backends.db import SessionStore  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, connection, models, transaction  # noqa: E402


def refused(write):
    try:
        with transaction.atomic():
            write()
    except IntegrityError:
        return
    raise AssertionError("accepted")


def accounts():
    ann = User.objects.create_user("ann", "ann@example.org", "secret")
    group = Group.objects.create(name="editors")
    group.permissions.set(Permission.objects.filter(content_type__app_label="auth"))
    ann.groups.add(group)
    assert authenticate(username="ann", password="secret") == ann
    assert authenticate(username="ann", password="wrong") is None
    assert ann.has_perm("auth.add_user")
    assert User.objects.filter(groups__name="editors").count() == 1
    refused(lambda: User.objects.create_user("ann"))
    return ann


def sessions_and_log(ann):
    store = SessionStore()
    store["cart"] = [1, 2]
    store.save()
    assert SessionStore(store.session_key)["cart"] == [1, 2]
    kind = ContentType.objects.get_for_model(User)
    LogEntry.objects.create(
        user=ann, content_type=kind, object_id="1", object_repr="x", action_flag=ADDITION, change_message="m"
    )
    newest = LogEntry.objects.select_related("user").latest("action_time")
    assert newest.user == ann
    now = datetime.datetime.now(datetime.timezone.utc)
    assert abs(newest.action_time - now) < datetime.timedelta(minutes=5)
    # Checked by the database, not by Django: a flag below zero, and at the commit a user that is not there.
    refused(lambda: LogEntry.objects.filter(pk=newest.pk).update(action_flag=-1))
    refused(lambda: LogEntry.objects.filter(pk=newest.pk).update(user_id=9999))
    ann.delete()
    assert not LogEntry.objects.exists()


class Author(models.Model):
    name = models.CharField(max_length=20, unique=True)

    class Meta:
        app_label = "books"


class Book(models.Model):
    title = models.CharField(max_length=20, db_index=True)
    pages = models.PositiveIntegerField(default=1)
    author = models.ForeignKey(Author, models.CASCADE)

    class Meta:
        app_label = "books"
        constraints = [models.CheckConstraint(condition=~models.Q(title=""), name="titled")]


def schema_editor():
    with connection.schema_editor() as editor:
        editor.create_model(Author)
        editor.create_model(Book)
    author = Author.objects.create(name="A")
    Book.objects.bulk_create(Book(title=str(pages), pages=pages, author=author) for pages in range(1, 200))
    assert Book.objects.filter(author__name="A").aggregate(models.Sum("pages"))["pages__sum"] == 199 * 100
    refused(lambda: Book.objects.create(title="", author=author))
    refused(lambda: Book.objects.filter(pages=1).update(pages=-1))
    Book.objects.filter(pages__gt=2).update(pages=models.F("pages") + 1)
    assert Author.objects.get_or_create(name="A") == (author, False)
    with transaction.atomic():
        assert Book.objects.select_for_update().filter(pages=1).get().title == "1"
    with connection.cursor() as cursor:
        names = connection.introspection.table_names(cursor)
        assert {"books_author", "books_book", "auth_user"} <= set(names)
        relations = connection.introspection.get_relations(cursor, "books_book")
        assert relations["author_id"][:2] == ("id", "books_author"), relations
    with connection.schema_editor() as editor:
        wider = models.CharField(max_length=200, unique=True)
        wider.set_attributes_from_name("name")
        wider.model = Author
        editor.alter_field(Author, Author._meta.get_field("name"), wider)
        editor.delete_model(Book)
        editor.delete_model(Author)


def main():
    call_command("migrate", verbosity=0)
    try:
        sessions_and_log(accounts())
        schema_editor()
        call_command("flush", interactive=False, verbosity=0)
        assert not Group.objects.exists()
    finally:
        with connection.cursor() as cursor:
            for table in connection.introspection.table_names(cursor):
                if table.split("_")[0] in ("auth", "django", "books"):
                    cursor.execute(f'DROP TABLE IF EXISTS "{table}" CASCADE')
    print("django: migrate, accounts, sessions, admin log, schema editor, flush")


main()
