#pragma once

// The functions of OpenSSL that Amalgam calls. Included before OpenSSL's own headers.
//
// A program that is linked with libssl and libcrypto loads both when it starts, 5 MB and 0.7 ms,
// whether it ever encrypts or not. So the functions below get another name in our objects, under
// which openssl_functions.cpp defines them: the first call of any loads libssl, and all go on to
// where they are. What is missing from this list does not link.

// clang-format off
#define AMALGAM_OPENSSL_FUNCTIONS(X) \
    X(ASN1_INTEGER_cmp) X(ASN1_INTEGER_dup) X(ASN1_INTEGER_get_uint64) X(ASN1_INTEGER_new) \
    X(ASN1_INTEGER_set_uint64) X(ASN1_INTEGER_to_BN) X(ASN1_STRING_free) X(ASN1_STRING_get0_data) \
    X(ASN1_STRING_length) X(ASN1_STRING_to_UTF8) X(ASN1_TIME_set) X(ASN1_TIME_to_tm) \
    X(AUTHORITY_KEYID_free) \
    X(BIO_clear_flags) X(BIO_ctrl) X(BIO_free_all) X(BIO_get_data) X(BIO_get_new_index) \
    X(BIO_meth_new) X(BIO_meth_set_ctrl) X(BIO_meth_set_read) X(BIO_meth_set_write) X(BIO_new) \
    X(BIO_new_mem_buf) X(BIO_read) X(BIO_s_mem) X(BIO_set_data) X(BIO_set_flags) X(BIO_set_init) \
    X(BIO_write) X(BN_add_word) X(BN_bin2bn) \
    X(BN_bn2hex) X(BN_free) X(BN_hex2bn) X(BN_to_ASN1_INTEGER) X(CRYPTO_clear_free) X(CRYPTO_free) \
    X(CRYPTO_get_ex_new_index) X(CRYPTO_get_mem_functions) X(CRYPTO_secure_clear_free) \
    X(CRYPTO_secure_malloc_init) X(CRYPTO_secure_malloc_initialized) X(CRYPTO_secure_zalloc) \
    X(CRYPTO_zalloc) X(ERR_get_error) X(ERR_peek_last_error) X(ERR_reason_error_string) \
    X(EVP_CIPHER_CTX_ctrl) X(EVP_CIPHER_CTX_free) X(EVP_CIPHER_CTX_new) X(EVP_CIPHER_fetch) \
    X(EVP_CipherFinal_ex) X(EVP_CipherInit_ex) X(EVP_CipherUpdate) X(EVP_Digest) X(EVP_DigestSign) \
    X(EVP_DigestSignInit_ex) X(EVP_DigestVerify) X(EVP_DigestVerifyInit_ex) X(EVP_EncodeBlock) \
    X(EVP_MD_CTX_free) X(EVP_MD_CTX_new) X(EVP_MD_fetch) X(EVP_MD_is_a) X(EVP_PKEY2PKCS8) \
    X(EVP_PKEY_Q_keygen) X(EVP_PKEY_free) X(EVP_PKEY_get0_type_name) X(EVP_PKEY_get_bits) \
    X(EVP_PKEY_get_raw_private_key) X(EVP_PKEY_get_security_bits) X(EVP_PKEY_get_size) \
    X(EVP_PKEY_is_a) X(EVP_sha256) X(GENERAL_NAMES_free) X(GENERAL_NAME_get0_value) X(HMAC) \
    X(OPENSSL_cleanse) X(OPENSSL_sk_new_null) X(OPENSSL_sk_num) X(OPENSSL_sk_pop_free) \
    X(OPENSSL_sk_push) X(OPENSSL_sk_value) X(PEM_read_bio_X509) X(PEM_read_bio_X509_CRL) \
    X(PEM_read_bio_X509_REQ) X(PEM_write_bio_X509) X(PEM_write_bio_X509_CRL) \
    X(PEM_write_bio_X509_REQ) X(PKCS8_PRIV_KEY_INFO_free) X(RAND_bytes) X(SSL_CIPHER_find) \
    X(SSL_CIPHER_get_protocol_id) X(SSL_CTX_ctrl) X(SSL_CTX_free) X(SSL_CTX_get0_param) \
    X(SSL_CTX_get_ex_data) X(SSL_CTX_new) X(SSL_CTX_set1_cert_store) X(SSL_CTX_set_alpn_protos) \
    X(SSL_CTX_set_alpn_select_cb) X(SSL_CTX_set_cert_verify_callback) X(SSL_CTX_set_ciphersuites) \
    X(SSL_CTX_set_client_hello_cb) X(SSL_CTX_set_ex_data) X(SSL_CTX_set_keylog_callback) \
    X(SSL_CTX_set_max_early_data) X(SSL_CTX_set_num_tickets) X(SSL_CTX_set_options) \
    X(SSL_CTX_set_psk_find_session_callback) X(SSL_CTX_set_psk_use_session_callback) \
    X(SSL_CTX_set_recv_max_early_data) X(SSL_CTX_set_security_level) \
    X(SSL_CTX_set_session_id_context) X(SSL_CTX_set_verify) X(SSL_CTX_up_ref) \
    X(SSL_CTX_use_PrivateKey) X(SSL_CTX_use_certificate) X(SSL_SESSION_free) \
    X(SSL_SESSION_get_ex_data) X(SSL_SESSION_get_max_fragment_length) \
    X(SSL_SESSION_is_resumable) X(SSL_SESSION_new) X(SSL_SESSION_set1_master_key) \
    X(SSL_SESSION_set_cipher) X(SSL_SESSION_set_ex_data) X(SSL_SESSION_set_protocol_version) \
    X(SSL_alert_desc_string_long) \
    X(SSL_client_hello_get0_ext) X(SSL_ctrl) X(SSL_do_handshake) X(SSL_export_keying_material) \
    X(SSL_free) X(SSL_free_buffers) X(SSL_get0_alpn_selected) X(SSL_get0_param) \
    X(SSL_get0_peer_certificate) X(SSL_get0_verified_chain) \
    X(SSL_get1_session) X(SSL_get_SSL_CTX) X(SSL_get_current_cipher) \
    X(SSL_get_error) X(SSL_get_ex_data) X(SSL_get_ex_data_X509_STORE_CTX_idx) \
    X(SSL_get_peer_cert_chain) X(SSL_get_security_level) X(SSL_get_session) \
    X(SSL_get_shutdown) X(SSL_get_verify_result) X(SSL_has_pending) X(SSL_in_init) \
    X(SSL_is_server) X(SSL_key_update) X(SSL_new) X(SSL_peek_ex) X(SSL_read_ex) \
    X(SSL_select_next_proto) X(SSL_session_reused) X(SSL_set1_host) X(SSL_set_accept_state) \
    X(SSL_set_bio) X(SSL_set_connect_state) X(SSL_set_default_read_buffer_len) X(SSL_set_ex_data) \
    X(SSL_set_msg_callback) X(SSL_set_read_ahead) X(SSL_set_session) X(SSL_set_shutdown) \
    X(SSL_shutdown) X(SSL_state_string) X(SSL_want) X(SSL_write_ex) X(TLS_client_method) \
    X(TLS_method) X(TLS_server_method) X(X509V3_EXT_conf_nid) X(X509V3_get_d2i) X(X509V3_set_ctx) \
    X(X509_CRL_add0_revoked) X(X509_CRL_add1_ext_i2d) X(X509_CRL_add_ext) X(X509_CRL_free) \
    X(X509_CRL_get0_by_serial) X(X509_CRL_get0_lastUpdate) X(X509_CRL_get0_nextUpdate) \
    X(X509_CRL_get_REVOKED) X(X509_CRL_get_ext_by_NID) X(X509_CRL_get_ext_d2i) \
    X(X509_CRL_get_issuer) X(X509_CRL_new) X(X509_CRL_set1_lastUpdate) X(X509_CRL_set1_nextUpdate) \
    X(X509_CRL_up_ref) \
    X(X509_CRL_set_issuer_name) X(X509_CRL_set_version) X(X509_CRL_sign) X(X509_CRL_sort) \
    X(X509_CRL_verify) X(X509_EXTENSION_dup) X(X509_EXTENSION_free) X(X509_NAME_ENTRY_get_data) \
    X(X509_NAME_add_entry_by_NID) X(X509_NAME_cmp) X(X509_NAME_get_entry) \
    X(X509_NAME_get_index_by_NID) X(X509_NAME_print_ex) X(X509_REQ_add_extensions) \
    X(X509_REQ_free) X(X509_REQ_get0_pubkey) X(X509_REQ_get_extensions) \
    X(X509_REQ_get_subject_name) X(X509_REQ_new) X(X509_REQ_set_pubkey) X(X509_REQ_set_version) \
    X(X509_REQ_sign) X(X509_REQ_verify) X(X509_REVOKED_dup) X(X509_REVOKED_free) \
    X(X509_REVOKED_get0_revocationDate) X(X509_REVOKED_get0_serialNumber) X(X509_REVOKED_new) \
    X(X509_REVOKED_set_revocationDate) X(X509_REVOKED_set_serialNumber) X(X509_STORE_CTX_free) \
    X(X509_STORE_CTX_get0_cert) X(X509_STORE_CTX_get0_chain) X(X509_STORE_CTX_get0_param) \
    X(X509_STORE_CTX_get_error) \
    X(X509_STORE_CTX_get_ex_data) X(X509_STORE_CTX_init) X(X509_STORE_CTX_new) \
    X(X509_STORE_CTX_set0_verified_chain) X(X509_STORE_CTX_set_error) X(X509_STORE_CTX_set_flags) X(X509_STORE_CTX_set_purpose) \
    X(X509_STORE_add_cert) X(X509_STORE_add_crl) X(X509_STORE_free) X(X509_STORE_new) \
    X(X509_STORE_set_verify_cb) X(X509_VERIFY_PARAM_set1) X(X509_VERIFY_PARAM_set1_ip_asc) \
    X(X509_VERIFY_PARAM_set_auth_level) X(X509_VERIFY_PARAM_set_flags) \
    X(X509_VERIFY_PARAM_set_hostflags) X(X509_VERIFY_PARAM_set_purpose) X(X509_add_ext) \
    X(X509_check_akid) X(X509_check_ca) \
    X(X509_check_private_key) X(X509_check_purpose) X(X509_cmp) \
    X(X509_cmp_current_time) X(X509_free) X(X509_get0_notAfter) X(X509_get0_notBefore) \
    X(X509_get0_pubkey) X(X509_get0_serialNumber) X(X509_get_X509_PUBKEY) X(X509_get_ext_d2i) \
    X(X509_get_extension_flags) X(X509_get_issuer_name) X(X509_get_serialNumber) X(X509_get_subject_name) \
    X(X509_getm_notAfter) X(X509_getm_notBefore) X(X509_gmtime_adj) X(X509_new) \
    X(X509_set_issuer_name) X(X509_set_pubkey) X(X509_set_subject_name) X(X509_set_version) \
    X(X509_sign) X(X509_up_ref) X(X509_verify) X(X509_verify_cert) X(X509_verify_cert_error_string) \
    X(d2i_AutoPrivateKey) X(d2i_X509) X(i2d_PKCS8_PRIV_KEY_INFO) X(i2d_PUBKEY) X(i2d_X509) \
    X(i2d_X509_PUBKEY)
// clang-format on

#if defined(__x86_64__) || defined(__aarch64__)
#define AMALGAM_RENAMES_OPENSSL 1
#define AMALGAM_PRAGMA(text) _Pragma(#text)
#define AMALGAM_RENAME(name) AMALGAM_PRAGMA(redefine_extname name amalgam_openssl_##name)
AMALGAM_OPENSSL_FUNCTIONS(AMALGAM_RENAME)
#undef AMALGAM_RENAME
#undef AMALGAM_PRAGMA
#endif
