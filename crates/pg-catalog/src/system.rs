//! The oids of system relations: by which clients name them (`classoid::regclass`) and which `tableoid`
//! shows.

/// System tables by oid.
pub(crate) const SYSTEM_RELATIONS: &[(u32, &str)] = &[
    (826, "pg_default_acl"),
    (1213, "pg_tablespace"),
    (1214, "pg_shdepend"),
    (1247, "pg_type"),
    (1249, "pg_attribute"),
    (1255, "pg_proc"),
    (1259, "pg_class"),
    (1260, "pg_authid"),
    (1261, "pg_auth_members"),
    (1262, "pg_database"),
    (1417, "pg_foreign_server"),
    (2224, "pg_sequence"),
    (2328, "pg_foreign_data_wrapper"),
    (2396, "pg_shdescription"),
    (2600, "pg_aggregate"),
    (2601, "pg_am"),
    (2602, "pg_amop"),
    (2603, "pg_amproc"),
    (2604, "pg_attrdef"),
    (2605, "pg_cast"),
    (2606, "pg_constraint"),
    (2607, "pg_conversion"),
    (2608, "pg_depend"),
    (2609, "pg_description"),
    (2610, "pg_index"),
    (2611, "pg_inherits"),
    (2612, "pg_language"),
    (2613, "pg_largeobject"),
    (2615, "pg_namespace"),
    (2616, "pg_opclass"),
    (2617, "pg_operator"),
    (2618, "pg_rewrite"),
    (2619, "pg_statistic"),
    (2620, "pg_trigger"),
    (2753, "pg_opfamily"),
    (2964, "pg_db_role_setting"),
    (2995, "pg_largeobject_metadata"),
    (3079, "pg_extension"),
    (3118, "pg_foreign_table"),
    (3256, "pg_policy"),
    (3350, "pg_partitioned_table"),
    (3381, "pg_statistic_ext"),
    (3394, "pg_init_privs"),
    (3456, "pg_collation"),
    (3466, "pg_event_trigger"),
    (3501, "pg_enum"),
    (3541, "pg_range"),
    (3576, "pg_transform"),
    (3596, "pg_seclabel"),
    (3600, "pg_ts_dict"),
    (3601, "pg_ts_parser"),
    (3602, "pg_ts_config"),
    (3764, "pg_ts_template"),
    (6100, "pg_subscription"),
    (6104, "pg_publication"),
    (6106, "pg_publication_rel"),
    (6237, "pg_publication_namespace"),
    (3592, "pg_shseclabel"),
    (6243, "pg_parameter_acl"),
    (6102, "pg_subscription_rel"),
];

/// The name of a system table.
pub(crate) fn system_relation(id: u32) -> Option<&'static str> {
    let known = SYSTEM_RELATIONS.iter().find(|(oid, _)| *oid == id);
    known.map(|(_, name)| *name)
}

/// The oid of a system table.
pub(crate) fn system_oid(name: &str) -> Option<u32> {
    let known = SYSTEM_RELATIONS.iter().find(|(_, known)| *known == name);
    known.map(|(oid, _)| *oid)
}
