//! The catalog's tables: names and columns, as PostgreSQL 15 has them.
//!
//! One line per table: name, then `column:kind` with kind o oid, t text/name/"char", b boolean, s int2, i
//! int4, l int8, f float4, d float8, z timestamptz, O oid[], S int2[], T text[]. What a client does not look
//! at is left out.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::query::{arrow_type, timestamptz_type};
use weft_types::SqlType;

/// Tables of `pg_catalog`.
const PG_CATALOG: &str = "\
pg_namespace oid:o nspname:t nspowner:o nspacl:T
pg_class oid:o relname:t relnamespace:o reltype:o reloftype:o relowner:o relam:o relfilenode:o reltablespace:o relpages:i reltuples:f relallvisible:i reltoastrelid:o relhasindex:b relisshared:b relpersistence:t relkind:t relnatts:s relchecks:s relhasrules:b relhastriggers:b relhassubclass:b relrowsecurity:b relforcerowsecurity:b relispopulated:b relreplident:t relispartition:b relrewrite:o relfrozenxid:o relminmxid:o relacl:T reloptions:T relpartbound:t
pg_attribute attrelid:o attname:t atttypid:o attstattarget:i attlen:s attnum:s attndims:i attcacheoff:i atttypmod:i attbyval:b attalign:t attstorage:t attcompression:t attnotnull:b atthasdef:b atthasmissing:b attidentity:t attgenerated:t attisdropped:b attislocal:b attinhcount:i attcollation:o attacl:T attoptions:T attfdwoptions:T attmissingval:t
pg_attrdef oid:o adrelid:o adnum:s adbin:t
pg_type oid:o typname:t typnamespace:o typowner:o typlen:s typbyval:b typtype:t typcategory:t typispreferred:b typisdefined:b typdelim:t typrelid:o typsubscript:t typelem:o typarray:o typinput:t typoutput:t typreceive:t typsend:t typmodin:t typmodout:t typanalyze:t typalign:t typstorage:t typnotnull:b typbasetype:o typtypmod:i typndims:i typcollation:o typdefaultbin:t typdefault:t typacl:T
pg_index indexrelid:o indrelid:o indnatts:s indnkeyatts:s indisunique:b indnullsnotdistinct:b indisprimary:b indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b indisreplident:b indkey:S indcollation:O indclass:O indoption:S indexprs:t indpred:t
pg_constraint oid:o conname:t connamespace:o contype:t condeferrable:b condeferred:b convalidated:b conrelid:o contypid:o conindid:o conparentid:o confrelid:o confupdtype:t confdeltype:t confmatchtype:t conislocal:b coninhcount:i connoinherit:b conkey:S confkey:S conpfeqop:O conppeqop:O conffeqop:O confdelsetcols:S conexclop:O conbin:t
pg_sequence seqrelid:o seqtypid:o seqstart:l seqincrement:l seqmax:l seqmin:l seqcache:l seqcycle:b
pg_sequences schemaname:t sequencename:t sequenceowner:t data_type:t start_value:l min_value:l max_value:l increment_by:l cycle:b cache_size:l last_value:l
pg_depend classid:o objid:o objsubid:i refclassid:o refobjid:o refobjsubid:i deptype:t
pg_database oid:o datname:t datdba:o encoding:i datlocprovider:t datistemplate:b datallowconn:b datconnlimit:i datfrozenxid:o datminmxid:o dattablespace:o datcollate:t datctype:t daticulocale:t datcollversion:t datacl:T
pg_roles rolname:t rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b rolconnlimit:i rolpassword:t rolvaliduntil:z rolbypassrls:b rolconfig:T oid:o
pg_authid oid:o rolname:t rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b rolbypassrls:b rolconnlimit:i rolpassword:t rolvaliduntil:z
pg_user usename:t usesysid:o usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd:t valuntil:z useconfig:T
pg_am oid:o amname:t amhandler:t amtype:t
pg_collation oid:o collname:t collnamespace:o collowner:o collprovider:t collisdeterministic:b collencoding:i collcollate:t collctype:t colliculocale:t collversion:t
pg_settings name:t setting:t unit:t category:t short_desc:t extra_desc:t context:t vartype:t source:t min_val:t max_val:t enumvals:T boot_val:t reset_val:t sourcefile:t sourceline:i pending_restart:b
pg_tablespace oid:o spcname:t spcowner:o spcacl:T spcoptions:T
pg_language oid:o lanname:t lanowner:o lanispl:b lanpltrusted:b
pg_tables schemaname:t tablename:t tableowner:t tablespace:t hasindexes:b hasrules:b hastriggers:b rowsecurity:b
pg_indexes schemaname:t tablename:t indexname:t tablespace:t indexdef:t
pg_stat_user_tables relid:o schemaname:t relname:t seq_scan:l seq_tup_read:l idx_scan:l idx_tup_fetch:l n_tup_ins:l n_tup_upd:l n_tup_del:l n_live_tup:l n_dead_tup:l last_vacuum:z last_autovacuum:z last_analyze:z last_autoanalyze:z
";

/// Tables of `pg_catalog` that never have rows here.
const ALWAYS_EMPTY: &str = "\
pg_description objoid:o classoid:o objsubid:i description:t
pg_shdescription objoid:o classoid:o description:t
pg_auth_members roleid:o member:o grantor:o admin_option:b
pg_db_role_setting setdatabase:o setrole:o setconfig:T
pg_proc oid:o proname:t pronamespace:o proowner:o prolang:o procost:f prorows:f provariadic:o prosupport:t prokind:t prosecdef:b proleakproof:b proisstrict:b proretset:b provolatile:t proparallel:t pronargs:s pronargdefaults:s prorettype:o proargtypes:O proallargtypes:O proargmodes:T proargnames:T proargdefaults:t protrftypes:O prosrc:t probin:t prosqlbody:t proconfig:T proacl:T
pg_aggregate aggfnoid:o aggkind:t aggnumdirectargs:s
pg_inherits inhrelid:o inhparent:o inhseqno:i inhdetachpending:b
pg_policy oid:o polname:t polrelid:o polcmd:t polpermissive:b polroles:O polqual:t polwithcheck:t
pg_policies schemaname:t tablename:t policyname:t permissive:t roles:T cmd:t qual:t with_check:t
pg_trigger oid:o tgrelid:o tgparentid:o tgname:t tgfoid:o tgtype:s tgenabled:t tgisinternal:b tgconstrrelid:o tgconstrindid:o tgconstraint:o tgdeferrable:b tginitdeferred:b tgnargs:s tgattr:S tgargs:t tgqual:t tgoldtable:t tgnewtable:t
pg_event_trigger oid:o evtname:t evtevent:t evtowner:o evtfoid:o evtenabled:t evttags:T
pg_rewrite oid:o rulename:t ev_class:o ev_type:t ev_enabled:t is_instead:b ev_qual:t ev_action:t
pg_rules schemaname:t tablename:t rulename:t definition:t
pg_statistic_ext oid:o stxrelid:o stxname:t stxnamespace:o stxowner:o stxstattarget:i stxkeys:S stxkind:T stxexprs:t
pg_statistic starelid:o staattnum:s stainherit:b stanullfrac:f stawidth:i stadistinct:f
pg_stats schemaname:t tablename:t attname:t inherited:b null_frac:f avg_width:i n_distinct:f
pg_publication oid:o pubname:t pubowner:o puballtables:b pubinsert:b pubupdate:b pubdelete:b pubtruncate:b pubviaroot:b
pg_publication_rel oid:o prpubid:o prrelid:o prqual:t prattrs:S
pg_publication_namespace oid:o pnpubid:o pnnspid:o
pg_publication_tables pubname:t schemaname:t tablename:t attnames:T rowfilter:t
pg_subscription oid:o subdbid:o subname:t subowner:o subenabled:b
pg_foreign_table ftrelid:o ftserver:o ftoptions:T
pg_foreign_server oid:o srvname:t srvowner:o srvfdw:o srvtype:t srvversion:t srvacl:T srvoptions:T
pg_foreign_data_wrapper oid:o fdwname:t fdwowner:o fdwhandler:o fdwvalidator:o fdwacl:T fdwoptions:T
pg_user_mappings umid:o srvid:o srvname:t umuser:o usename:t umoptions:T
pg_partitioned_table partrelid:o partstrat:t partnatts:s partdefid:o partattrs:S partclass:O partcollation:O partexprs:t
pg_enum oid:o enumtypid:o enumsortorder:f enumlabel:t
pg_range rngtypid:o rngsubtype:o rngmultitypid:o rngcollation:o rngsubopc:o rngcanonical:t rngsubdiff:t
pg_cast oid:o castsource:o casttarget:o castfunc:o castcontext:t castmethod:t
pg_operator oid:o oprname:t oprnamespace:o oprowner:o oprkind:t oprcanmerge:b oprcanhash:b oprleft:o oprright:o oprresult:o oprcom:o oprnegate:o oprcode:t oprrest:t oprjoin:t
pg_opclass oid:o opcmethod:o opcname:t opcnamespace:o opcowner:o opcfamily:o opcintype:o opcdefault:b opckeytype:o
pg_opfamily oid:o opfmethod:o opfname:t opfnamespace:o opfowner:o
pg_amop oid:o amopfamily:o amoplefttype:o amoprighttype:o amopstrategy:s amoppurpose:t amopopr:o amopmethod:o amopsortfamily:o
pg_conversion oid:o conname:t connamespace:o conowner:o conforencoding:i contoencoding:i conproc:t condefault:b
pg_default_acl oid:o defaclrole:o defaclnamespace:o defaclobjtype:t defaclacl:T
pg_seclabel objoid:o classoid:o objsubid:i provider:t label:t
pg_seclabels objoid:o classoid:o objsubid:i objtype:t objnamespace:o objname:t provider:t label:t
pg_extension oid:o extname:t extowner:o extnamespace:o extrelocatable:b extversion:t extconfig:O extcondition:T
pg_available_extensions name:t default_version:t installed_version:t comment:t
pg_shdepend dbid:o classid:o objid:o objsubid:i refclassid:o refobjid:o deptype:t
pg_init_privs objoid:o classoid:o objsubid:i privtype:t initprivs:T
pg_largeobject_metadata oid:o lomowner:o lomacl:T
pg_ts_config oid:o cfgname:t cfgnamespace:o cfgowner:o cfgparser:o
pg_ts_dict oid:o dictname:t dictnamespace:o dictowner:o dicttemplate:o dictinitoption:t
pg_ts_parser oid:o prsname:t prsnamespace:o
pg_ts_template oid:o tmplname:t tmplnamespace:o
pg_transform oid:o trftype:o trflang:o trffromsql:t trftosql:t
pg_views schemaname:t viewname:t viewowner:t definition:t
pg_matviews schemaname:t matviewname:t matviewowner:t tablespace:t hasindexes:b ispopulated:b definition:t
pg_group groname:t grosysid:o grolist:O
pg_locks locktype:t database:o relation:o page:i tuple:s virtualxid:t transactionid:o classid:o objid:o objsubid:s virtualtransaction:t pid:i mode:t granted:b fastpath:b waitstart:z
pg_stat_activity datid:o datname:t pid:i leader_pid:i usesysid:o usename:t application_name:t client_addr:t client_hostname:t client_port:i backend_start:z xact_start:z query_start:z state_change:z wait_event_type:t wait_event:t state:t backend_xid:o backend_xmin:o query_id:l query:t backend_type:t
pg_stat_replication pid:i usesysid:o usename:t application_name:t client_addr:t state:t
pg_prepared_statements name:t statement:t prepare_time:z parameter_types:T from_sql:b
pg_prepared_xacts transaction:o gid:t prepared:z owner:t database:t
pg_cursors name:t statement:t is_holdable:b is_binary:b is_scrollable:b creation_time:z
pg_timezone_names name:t abbrev:t utc_offset:t is_dst:b
pg_timezone_abbrevs abbrev:t utc_offset:t is_dst:b
";

/// Tables of `information_schema`.
const INFORMATION_SCHEMA: &str = "\
schemata catalog_name:t schema_name:t schema_owner:t default_character_set_catalog:t default_character_set_schema:t default_character_set_name:t sql_path:t
tables table_catalog:t table_schema:t table_name:t table_type:t self_referencing_column_name:t reference_generation:t user_defined_type_catalog:t user_defined_type_schema:t user_defined_type_name:t is_insertable_into:t is_typed:t commit_action:t
columns table_catalog:t table_schema:t table_name:t column_name:t ordinal_position:i column_default:t is_nullable:t data_type:t character_maximum_length:i character_octet_length:i numeric_precision:i numeric_precision_radix:i numeric_scale:i datetime_precision:i interval_type:t interval_precision:i character_set_name:t collation_name:t domain_name:t udt_catalog:t udt_schema:t udt_name:t is_self_referencing:t is_identity:t identity_generation:t identity_start:t identity_increment:t identity_maximum:t identity_minimum:t identity_cycle:t is_generated:t generation_expression:t is_updatable:t
table_constraints constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t table_name:t constraint_type:t is_deferrable:t initially_deferred:t enforced:t nulls_distinct:t
key_column_usage constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t table_name:t column_name:t ordinal_position:i position_in_unique_constraint:i
constraint_column_usage table_catalog:t table_schema:t table_name:t column_name:t constraint_catalog:t constraint_schema:t constraint_name:t
sequences sequence_catalog:t sequence_schema:t sequence_name:t data_type:t numeric_precision:i numeric_precision_radix:i numeric_scale:i start_value:t minimum_value:t maximum_value:t increment:t cycle_option:t
referential_constraints constraint_catalog:t constraint_schema:t constraint_name:t unique_constraint_catalog:t unique_constraint_schema:t unique_constraint_name:t match_option:t update_rule:t delete_rule:t
views table_catalog:t table_schema:t table_name:t view_definition:t check_option:t is_updatable:t is_insertable_into:t
routines specific_catalog:t specific_schema:t specific_name:t routine_catalog:t routine_schema:t routine_name:t routine_type:t data_type:t routine_definition:t
triggers trigger_catalog:t trigger_schema:t trigger_name:t event_manipulation:t event_object_schema:t event_object_table:t action_statement:t action_timing:t
check_constraints constraint_catalog:t constraint_schema:t constraint_name:t check_clause:t
";

type Layouts = HashMap<(&'static str, &'static str), SchemaRef>;

/// The columns of a catalog table, or `None` when there is no such table.
pub fn columns(schema: &str, table: &str) -> Option<SchemaRef> {
    static LAYOUTS: OnceLock<Layouts> = OnceLock::new();
    let layouts = LAYOUTS.get_or_init(|| {
        let mut layouts = HashMap::new();
        read("pg_catalog", PG_CATALOG, &mut layouts);
        read("pg_catalog", ALWAYS_EMPTY, &mut layouts);
        read("information_schema", INFORMATION_SCHEMA, &mut layouts);
        layouts
    });
    layouts
        .iter()
        .find(|((s, t), _)| *s == schema && *t == table)
        .map(|(_, layout)| Arc::clone(layout))
}

/// Whether a table of `pg_catalog` never has rows.
pub fn is_always_empty(table: &str) -> bool {
    ALWAYS_EMPTY
        .lines()
        .any(|line| line.split(' ').next() == Some(table))
}

fn read(schema: &'static str, text: &'static str, layouts: &mut Layouts) {
    for line in text.lines() {
        let mut words = line.split(' ');
        let Some(table) = words.next() else { continue };
        let fields: Vec<Field> = words
            .filter_map(|word| word.split_once(':'))
            .map(|(name, kind)| Field::new(name, kind_type(kind), true))
            .collect();
        layouts.insert((schema, table), Arc::new(Schema::new(fields)));
    }
}

fn kind_type(kind: &str) -> DataType {
    match kind {
        "o" => DataType::UInt32,
        "b" => DataType::Boolean,
        "s" => DataType::Int16,
        "i" => DataType::Int32,
        "l" => DataType::Int64,
        "f" => DataType::Float32,
        "d" => arrow_type(&SqlType::Float8),
        "z" => timestamptz_type(),
        "O" => DataType::new_list(DataType::UInt32, true),
        "S" => DataType::new_list(DataType::Int16, true),
        "T" => DataType::new_list(DataType::Utf8, true),
        _ => DataType::Utf8,
    }
}
