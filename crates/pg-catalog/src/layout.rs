//! The catalog's tables: names, columns and types, as in PostgreSQL 15 (`pg_attribute`).
//!
//! One line per table: name, then `column:kind` with kind o oid, n name, c "char", t text, b boolean, s
//! int2, i int4, l int8, f float4, d float8, m numeric, z timestamptz, v interval, B bytea, and O oid[], S
//! int2[], V int2vector, W oidvector, T text[], N name[], C "char"[], F float4[]. Types that do not exist
//! here are replaced by the closest one: regproc, aclitem and pg_node_tree by text, xid by oid.

use std::collections::HashMap;
use std::sync::LazyLock;

use weft_types::SqlType;
use weft_types::sql_type::Element;

/// Tables of `pg_catalog`.
const PG_CATALOG: &str = "\
pg_namespace oid:o nspname:n nspowner:o nspacl:T
pg_class oid:o relname:n relnamespace:o reltype:o reloftype:o relowner:o relam:o relfilenode:o reltablespace:o relpages:i reltuples:f relallvisible:i reltoastrelid:o relhasindex:b relisshared:b relpersistence:c relkind:c relnatts:s relchecks:s relhasrules:b relhastriggers:b relhassubclass:b relrowsecurity:b relforcerowsecurity:b relispopulated:b relreplident:c relispartition:b relrewrite:o relfrozenxid:o relminmxid:o relacl:T reloptions:T relpartbound:t
pg_attribute attrelid:o attname:n atttypid:o attstattarget:i attlen:s attnum:s attndims:i attcacheoff:i atttypmod:i attbyval:b attalign:c attstorage:c attcompression:c attnotnull:b atthasdef:b atthasmissing:b attidentity:c attgenerated:c attisdropped:b attislocal:b attinhcount:i attcollation:o attacl:T attoptions:T attfdwoptions:T attmissingval:T
pg_attrdef oid:o adrelid:o adnum:s adbin:t
pg_type oid:o typname:n typnamespace:o typowner:o typlen:s typbyval:b typtype:c typcategory:c typispreferred:b typisdefined:b typdelim:c typrelid:o typsubscript:t typelem:o typarray:o typinput:t typoutput:t typreceive:t typsend:t typmodin:t typmodout:t typanalyze:t typalign:c typstorage:c typnotnull:b typbasetype:o typtypmod:i typndims:i typcollation:o typdefaultbin:t typdefault:t typacl:T
pg_index indexrelid:o indrelid:o indnatts:s indnkeyatts:s indisunique:b indnullsnotdistinct:b indisprimary:b indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b indisreplident:b indkey:V indcollation:W indclass:W indoption:V indexprs:t indpred:t
pg_constraint oid:o conname:n connamespace:o contype:c condeferrable:b condeferred:b convalidated:b conrelid:o contypid:o conindid:o conparentid:o confrelid:o confupdtype:c confdeltype:c confmatchtype:c conislocal:b coninhcount:i connoinherit:b conkey:S confkey:S conpfeqop:O conppeqop:O conffeqop:O confdelsetcols:S conexclop:O conbin:t
pg_sequence seqrelid:o seqtypid:o seqstart:l seqincrement:l seqmax:l seqmin:l seqcache:l seqcycle:b
pg_sequences schemaname:n sequencename:n sequenceowner:n data_type:o start_value:l min_value:l max_value:l increment_by:l cycle:b cache_size:l last_value:l
pg_depend classid:o objid:o objsubid:i refclassid:o refobjid:o refobjsubid:i deptype:c
pg_database oid:o datname:n datdba:o encoding:i datlocprovider:c datistemplate:b datallowconn:b datconnlimit:i datfrozenxid:o datminmxid:o dattablespace:o datcollate:t datctype:t daticulocale:t datcollversion:t datacl:T
pg_roles rolname:n rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b rolconnlimit:i rolpassword:t rolvaliduntil:z rolbypassrls:b rolconfig:T oid:o
pg_authid oid:o rolname:n rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b rolbypassrls:b rolconnlimit:i rolpassword:t rolvaliduntil:z
pg_shadow usename:n usesysid:o usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd:t valuntil:z useconfig:T
pg_user usename:n usesysid:o usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd:t valuntil:z useconfig:T
pg_am oid:o amname:n amhandler:t amtype:c
pg_collation oid:o collname:n collnamespace:o collowner:o collprovider:c collisdeterministic:b collencoding:i collcollate:t collctype:t colliculocale:t collversion:t
pg_settings name:t setting:t unit:t category:t short_desc:t extra_desc:t context:t vartype:t source:t min_val:t max_val:t enumvals:T boot_val:t reset_val:t sourcefile:t sourceline:i pending_restart:b
pg_tablespace oid:o spcname:n spcowner:o spcacl:T spcoptions:T
pg_language oid:o lanname:n lanowner:o lanispl:b lanpltrusted:b lanplcallfoid:o laninline:o lanvalidator:o lanacl:T
pg_tables schemaname:n tablename:n tableowner:n tablespace:n hasindexes:b hasrules:b hastriggers:b rowsecurity:b
pg_indexes schemaname:n tablename:n indexname:n tablespace:n indexdef:t
pg_views schemaname:n viewname:n viewowner:n definition:t
pg_rewrite oid:o rulename:n ev_class:o ev_type:c ev_enabled:c is_instead:b ev_qual:t ev_action:t
pg_stat_ssl pid:i ssl:b version:t cipher:t bits:i client_dn:t client_serial:m issuer_dn:t
pg_stat_user_tables relid:o schemaname:n relname:n seq_scan:l seq_tup_read:l idx_scan:l idx_tup_fetch:l n_tup_ins:l n_tup_upd:l n_tup_del:l n_tup_hot_upd:l n_live_tup:l n_dead_tup:l n_mod_since_analyze:l n_ins_since_vacuum:l last_vacuum:z last_autovacuum:z last_analyze:z last_autoanalyze:z vacuum_count:l autovacuum_count:l analyze_count:l autoanalyze_count:l
";

/// Tables of `pg_catalog` that never have rows here, except for users' procedures.
const ALWAYS_EMPTY: &str = "\
pg_description objoid:o classoid:o objsubid:i description:t
pg_shdescription objoid:o classoid:o description:t
pg_auth_members roleid:o member:o grantor:o admin_option:b
pg_db_role_setting setdatabase:o setrole:o setconfig:T
pg_proc oid:o proname:n pronamespace:o proowner:o prolang:o procost:f prorows:f provariadic:o prosupport:t prokind:c prosecdef:b proleakproof:b proisstrict:b proretset:b provolatile:c proparallel:c pronargs:s pronargdefaults:s prorettype:o proargtypes:W proallargtypes:O proargmodes:C proargnames:T proargdefaults:t protrftypes:O prosrc:t probin:t prosqlbody:t proconfig:T proacl:T
pg_aggregate aggfnoid:t aggkind:c aggnumdirectargs:s aggtransfn:t aggfinalfn:t aggcombinefn:t aggserialfn:t aggdeserialfn:t aggmtransfn:t aggminvtransfn:t aggmfinalfn:t aggfinalextra:b aggmfinalextra:b aggfinalmodify:c aggmfinalmodify:c aggsortop:o aggtranstype:o aggtransspace:i aggmtranstype:o aggmtransspace:i agginitval:t aggminitval:t
pg_inherits inhrelid:o inhparent:o inhseqno:i inhdetachpending:b
pg_policy oid:o polname:n polrelid:o polcmd:c polpermissive:b polroles:O polqual:t polwithcheck:t
pg_policies schemaname:n tablename:n policyname:n permissive:t roles:N cmd:t qual:t with_check:t
pg_trigger oid:o tgrelid:o tgparentid:o tgname:n tgfoid:o tgtype:s tgenabled:c tgisinternal:b tgconstrrelid:o tgconstrindid:o tgconstraint:o tgdeferrable:b tginitdeferred:b tgnargs:s tgattr:V tgargs:B tgqual:t tgoldtable:n tgnewtable:n
pg_event_trigger oid:o evtname:n evtevent:n evtowner:o evtfoid:o evtenabled:c evttags:T
pg_rules schemaname:n tablename:n rulename:n definition:t
pg_statistic_ext oid:o stxrelid:o stxname:n stxnamespace:o stxowner:o stxstattarget:i stxkeys:V stxkind:C stxexprs:t
pg_statistic starelid:o staattnum:s stainherit:b stanullfrac:f stawidth:i stadistinct:f stakind1:s stakind2:s stakind3:s stakind4:s stakind5:s staop1:o staop2:o staop3:o staop4:o staop5:o stacoll1:o stacoll2:o stacoll3:o stacoll4:o stacoll5:o stanumbers1:F stanumbers2:F stanumbers3:F stanumbers4:F stanumbers5:F stavalues1:T stavalues2:T stavalues3:T stavalues4:T stavalues5:T
pg_stats schemaname:n tablename:n attname:n inherited:b null_frac:f avg_width:i n_distinct:f most_common_vals:T most_common_freqs:F histogram_bounds:T correlation:f most_common_elems:T most_common_elem_freqs:F elem_count_histogram:F
pg_publication oid:o pubname:n pubowner:o puballtables:b pubinsert:b pubupdate:b pubdelete:b pubtruncate:b pubviaroot:b
pg_publication_rel oid:o prpubid:o prrelid:o prqual:t prattrs:S
pg_publication_namespace oid:o pnpubid:o pnnspid:o
pg_publication_tables pubname:n schemaname:n tablename:n attnames:N rowfilter:t
pg_subscription oid:o subdbid:o subskiplsn:t subname:n subowner:o subenabled:b subbinary:b substream:b subtwophasestate:c subdisableonerr:b subconninfo:t subslotname:n subsynccommit:t subpublications:T
pg_foreign_table ftrelid:o ftserver:o ftoptions:T
pg_foreign_server oid:o srvname:n srvowner:o srvfdw:o srvtype:t srvversion:t srvacl:T srvoptions:T
pg_foreign_data_wrapper oid:o fdwname:n fdwowner:o fdwhandler:o fdwvalidator:o fdwacl:T fdwoptions:T
pg_user_mappings umid:o srvid:o srvname:n umuser:o usename:n umoptions:T
pg_statio_all_tables relid:o schemaname:n relname:n heap_blks_read:l heap_blks_hit:l idx_blks_read:l idx_blks_hit:l toast_blks_read:l toast_blks_hit:l tidx_blks_read:l tidx_blks_hit:l
pg_partitioned_table partrelid:o partstrat:c partnatts:s partdefid:o partattrs:V partclass:W partcollation:W partexprs:t
pg_enum oid:o enumtypid:o enumsortorder:f enumlabel:n
pg_range rngtypid:o rngsubtype:o rngmultitypid:o rngcollation:o rngsubopc:o rngcanonical:t rngsubdiff:t
pg_cast oid:o castsource:o casttarget:o castfunc:o castcontext:c castmethod:c
pg_operator oid:o oprname:n oprnamespace:o oprowner:o oprkind:c oprcanmerge:b oprcanhash:b oprleft:o oprright:o oprresult:o oprcom:o oprnegate:o oprcode:t oprrest:t oprjoin:t
pg_opclass oid:o opcmethod:o opcname:n opcnamespace:o opcowner:o opcfamily:o opcintype:o opcdefault:b opckeytype:o
pg_opfamily oid:o opfmethod:o opfname:n opfnamespace:o opfowner:o
pg_amproc oid:o amprocfamily:o amproclefttype:o amprocrighttype:o amprocnum:s amproc:t
pg_largeobject loid:o pageno:i data:B
pg_subscription_rel srsubid:o srrelid:o srsubstate:c srsublsn:t
pg_amop oid:o amopfamily:o amoplefttype:o amoprighttype:o amopstrategy:s amoppurpose:c amopopr:o amopmethod:o amopsortfamily:o
pg_conversion oid:o conname:n connamespace:o conowner:o conforencoding:i contoencoding:i conproc:t condefault:b
pg_default_acl oid:o defaclrole:o defaclnamespace:o defaclobjtype:c defaclacl:T
pg_shseclabel objoid:o classoid:o provider:t label:t
pg_parameter_acl oid:o parname:t paracl:T
pg_seclabel objoid:o classoid:o objsubid:i provider:t label:t
pg_seclabels objoid:o classoid:o objsubid:i objtype:t objnamespace:o objname:t provider:t label:t
pg_extension oid:o extname:n extowner:o extnamespace:o extrelocatable:b extversion:t extconfig:O extcondition:T
pg_available_extensions name:n default_version:t installed_version:t comment:t
pg_shdepend dbid:o classid:o objid:o objsubid:i refclassid:o refobjid:o deptype:c
pg_init_privs objoid:o classoid:o objsubid:i privtype:c initprivs:T
pg_largeobject_metadata oid:o lomowner:o lomacl:T
pg_ts_config oid:o cfgname:n cfgnamespace:o cfgowner:o cfgparser:o
pg_ts_dict oid:o dictname:n dictnamespace:o dictowner:o dicttemplate:o dictinitoption:t
pg_ts_parser oid:o prsname:n prsnamespace:o prsstart:t prstoken:t prsend:t prsheadline:t prslextype:t
pg_ts_template oid:o tmplname:n tmplnamespace:o tmplinit:t tmpllexize:t
pg_transform oid:o trftype:o trflang:o trffromsql:o trftosql:o
pg_matviews schemaname:n matviewname:n matviewowner:n tablespace:n hasindexes:b ispopulated:b definition:t
pg_group groname:n grosysid:o grolist:O
pg_locks locktype:t database:o relation:o page:i tuple:s virtualxid:t transactionid:o classid:o objid:o objsubid:s virtualtransaction:t pid:i mode:t granted:b fastpath:b waitstart:z
pg_stat_activity datid:o datname:n pid:i leader_pid:i usesysid:o usename:n application_name:t client_addr:t client_hostname:t client_port:i backend_start:z xact_start:z query_start:z state_change:z wait_event_type:t wait_event:t state:t backend_xid:o backend_xmin:o query_id:l query:t backend_type:t
pg_stat_replication pid:i usesysid:o usename:n application_name:t client_addr:t client_hostname:t client_port:i backend_start:z backend_xmin:o state:t sent_lsn:t write_lsn:t flush_lsn:t replay_lsn:t write_lag:v flush_lag:v replay_lag:v sync_priority:i sync_state:t reply_time:z
pg_prepared_statements name:t statement:t prepare_time:z parameter_types:O from_sql:b generic_plans:l custom_plans:l
pg_prepared_xacts transaction:o gid:t prepared:z owner:n database:n
pg_cursors name:t statement:t is_holdable:b is_binary:b is_scrollable:b creation_time:z
pg_timezone_names name:t abbrev:t utc_offset:v is_dst:b
pg_timezone_abbrevs abbrev:t utc_offset:v is_dst:b
";

/// Tables of `information_schema`.
const INFORMATION_SCHEMA: &str = "\
schemata catalog_name:n schema_name:n schema_owner:n default_character_set_catalog:n default_character_set_schema:n default_character_set_name:n sql_path:t
tables table_catalog:n table_schema:n table_name:n table_type:t self_referencing_column_name:n reference_generation:t user_defined_type_catalog:n user_defined_type_schema:n user_defined_type_name:n is_insertable_into:t is_typed:t commit_action:t
columns table_catalog:n table_schema:n table_name:n column_name:n ordinal_position:i column_default:t is_nullable:t data_type:t character_maximum_length:i character_octet_length:i numeric_precision:i numeric_precision_radix:i numeric_scale:i datetime_precision:i interval_type:t interval_precision:i character_set_catalog:n character_set_schema:n character_set_name:n collation_catalog:n collation_schema:n collation_name:n domain_catalog:n domain_schema:n domain_name:n udt_catalog:n udt_schema:n udt_name:n scope_catalog:n scope_schema:n scope_name:n maximum_cardinality:i dtd_identifier:n is_self_referencing:t is_identity:t identity_generation:t identity_start:t identity_increment:t identity_maximum:t identity_minimum:t identity_cycle:t is_generated:t generation_expression:t is_updatable:t
table_constraints constraint_catalog:n constraint_schema:n constraint_name:n table_catalog:n table_schema:n table_name:n constraint_type:t is_deferrable:t initially_deferred:t enforced:t nulls_distinct:t
key_column_usage constraint_catalog:n constraint_schema:n constraint_name:n table_catalog:n table_schema:n table_name:n column_name:n ordinal_position:i position_in_unique_constraint:i
constraint_column_usage table_catalog:n table_schema:n table_name:n column_name:n constraint_catalog:n constraint_schema:n constraint_name:n
sequences sequence_catalog:n sequence_schema:n sequence_name:n data_type:t numeric_precision:i numeric_precision_radix:i numeric_scale:i start_value:t minimum_value:t maximum_value:t increment:t cycle_option:t
referential_constraints constraint_catalog:n constraint_schema:n constraint_name:n unique_constraint_catalog:n unique_constraint_schema:n unique_constraint_name:n match_option:t update_rule:t delete_rule:t
views table_catalog:n table_schema:n table_name:n view_definition:t check_option:t is_updatable:t is_insertable_into:t is_trigger_updatable:t is_trigger_deletable:t is_trigger_insertable_into:t
routines specific_catalog:n specific_schema:n specific_name:n routine_catalog:n routine_schema:n routine_name:n routine_type:t module_catalog:n module_schema:n module_name:n udt_catalog:n udt_schema:n udt_name:n data_type:t character_maximum_length:i character_octet_length:i character_set_catalog:n character_set_schema:n character_set_name:n collation_catalog:n collation_schema:n collation_name:n numeric_precision:i numeric_precision_radix:i numeric_scale:i datetime_precision:i interval_type:t interval_precision:i type_udt_catalog:n type_udt_schema:n type_udt_name:n scope_catalog:n scope_schema:n scope_name:n maximum_cardinality:i dtd_identifier:n routine_body:t routine_definition:t external_name:t external_language:t parameter_style:t is_deterministic:t sql_data_access:t is_null_call:t sql_path:t schema_level_routine:t max_dynamic_result_sets:i is_user_defined_cast:t is_implicitly_invocable:t security_type:t to_sql_specific_catalog:n to_sql_specific_schema:n to_sql_specific_name:n as_locator:t created:z last_altered:z new_savepoint_level:t is_udt_dependent:t result_cast_from_data_type:t result_cast_as_locator:t result_cast_char_max_length:i result_cast_char_octet_length:i result_cast_char_set_catalog:n result_cast_char_set_schema:n result_cast_char_set_name:n result_cast_collation_catalog:n result_cast_collation_schema:n result_cast_collation_name:n result_cast_numeric_precision:i result_cast_numeric_precision_radix:i result_cast_numeric_scale:i result_cast_datetime_precision:i result_cast_interval_type:t result_cast_interval_precision:i result_cast_type_udt_catalog:n result_cast_type_udt_schema:n result_cast_type_udt_name:n result_cast_scope_catalog:n result_cast_scope_schema:n result_cast_scope_name:n result_cast_maximum_cardinality:i result_cast_dtd_identifier:n
triggers trigger_catalog:n trigger_schema:n trigger_name:n event_manipulation:t event_object_catalog:n event_object_schema:n event_object_table:n action_order:i action_condition:t action_statement:t action_orientation:t action_timing:t action_reference_old_table:n action_reference_new_table:n action_reference_old_row:n action_reference_new_row:n created:z
check_constraints constraint_catalog:n constraint_schema:n constraint_name:n check_clause:t
";

type Columns = Vec<(&'static str, SqlType)>;

static LAYOUTS: LazyLock<HashMap<(&'static str, &'static str), Columns>> = LazyLock::new(|| {
    let mut layouts = HashMap::new();
    read("pg_catalog", PG_CATALOG, &mut layouts);
    read("pg_catalog", ALWAYS_EMPTY, &mut layouts);
    read("information_schema", INFORMATION_SCHEMA, &mut layouts);
    layouts
});

/// The columns of a catalog table; `None` if there is no such table.
pub fn columns(schema: &'static str, table: &str) -> Option<&'static [(&'static str, SqlType)]> {
    LAYOUTS
        .iter()
        .find(|((in_schema, name), _)| *in_schema == schema && *name == table)
        .map(|(_, columns)| columns.as_slice())
}

fn read(
    schema: &'static str,
    text: &'static str,
    layouts: &mut HashMap<(&'static str, &'static str), Columns>,
) {
    for line in text.lines() {
        let mut words = line.split(' ');
        let Some(table) = words.next() else { continue };
        let columns = words
            .filter_map(|word| word.split_once(':'))
            .map(|(name, kind)| (name, kind_type(kind)))
            .collect();
        layouts.insert((schema, table), columns);
    }
}

fn kind_type(kind: &str) -> SqlType {
    match kind {
        "o" => SqlType::Oid,
        "n" => SqlType::Name,
        "c" => SqlType::InternalChar,
        "b" => SqlType::Bool,
        "s" => SqlType::Int2,
        "i" => SqlType::Int4,
        "l" => SqlType::Int8,
        "f" => SqlType::Float4,
        "d" => SqlType::Float8,
        "m" => SqlType::Numeric(None),
        "z" => SqlType::TimestampTz,
        "v" => SqlType::Interval,
        "B" => SqlType::Bytea,
        "O" => SqlType::Array(Element::Oid),
        "S" => SqlType::Array(Element::Int2),
        "V" => SqlType::Array(Element::Int2Vector),
        "W" => SqlType::Array(Element::OidVector),
        "T" => SqlType::Array(Element::Text),
        "N" => SqlType::Array(Element::Name),
        "C" => SqlType::Array(Element::InternalChar),
        "F" => SqlType::Array(Element::Float4),
        _ => SqlType::Text,
    }
}
