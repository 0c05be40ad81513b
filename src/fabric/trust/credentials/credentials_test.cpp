#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <amalgam/fabric/credentials.hpp>

#include "fabric/limits.hpp"
#include "fabric/trust/credentials/credential_store.hpp"
#include "fabric/trust/credentials/signatures.hpp"
#include "fabric/trust/key_folders/lab_testing.hpp"
#include "fabric/trust/tls/tls_contexts.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

namespace files = std::filesystem;
using namespace std::chrono_literals;

credential_parts files_in(const std::string& folder) {
    return {.certificate = folder + "/certificate.pem",
            .key = folder + "/key.pem",
            .authority = folder + "/authority.pem",
            .revoked = folder + "/revoked.pem"};
}

credential_parts text_in(const std::string& folder) {
    const credential_parts at = files_in(folder);
    return {.certificate = content(at.certificate),
            .key = content(at.key),
            .authority = content(at.authority),
            .revoked = content(at.revoked)};
}

class credentials_test : public testing::Test {
protected:
    /// Why the folder is refused now.
    void expect_refused(errc code, const std::string& part) {
        const auto got = credentials::try_from_folder(node);
        EXPECT_EQ(got.code(), code) << part;
        EXPECT_NE(got.sentence().find(part), std::string::npos) << got.sentence();
        EXPECT_EQ(got.sentence().find('\n'), std::string::npos) << got.sentence();
    }
    void write(const std::string& file, const std::string& text) {
        std::ofstream(node + "/" + file) << text;
    }

    const lab_folder here;
    const std::string node = here.add("node", {.groups = {"compute"}});
};

TEST_F(credentials_test, the_same_are_read_from_a_folder_from_files_and_from_text) {
    const auto from_folder = credentials::from_folder(node);
    const auto from_files = credentials::from_files(files_in(node));
    const auto from_text = credentials::from_text(text_in(node));
    const identity who = from_folder->self();
    EXPECT_EQ(to_text(who), "node (groups: compute)");
    EXPECT_EQ(who.kind, identity_kind::certificate);
    EXPECT_NE(who.key, key_fingerprint{});
    for (const auto& each : {from_files, from_text}) {
        EXPECT_EQ(each->self(), who);
        EXPECT_EQ(each->expires(), from_folder->expires());
        EXPECT_EQ(each->explain(), from_folder->explain());
        EXPECT_TRUE(each->reload());
    }
    EXPECT_NE(from_text->explain().find("trusts who was certified by CN=lab (0 revoked)"),
              std::string::npos)
        << from_text->explain();
    const auto left = from_folder->expires() - std::chrono::system_clock::now();
    EXPECT_GT(left, 364 * 24h);
    EXPECT_LE(left, 365 * 24h);
}

TEST_F(credentials_test, a_name_means_a_folder_of_all_keys) {
    const char* const home_before = std::getenv("HOME");
    const std::string home = home_before == nullptr ? "" : home_before;
    const temp_folder config;
    ::setenv("XDG_CONFIG_HOME", config.path().c_str(), 1);
    EXPECT_EQ(key_folder("node7"), config.with("amalgam/keys/node7"));
    files::create_directories(config.with("amalgam/keys"));
    files::rename(node, config.with("amalgam/keys/node7"));
    EXPECT_EQ(credentials::from_folder("node7")->self().name, "node");
    ::setenv("XDG_CONFIG_HOME", "relative", 1);
    ::setenv("HOME", "/home/somebody", 1);
    EXPECT_EQ(key_folder("node7"), "/home/somebody/.config/amalgam/keys/node7");
    ::unsetenv("XDG_CONFIG_HOME");
    EXPECT_EQ(key_folder("./node7"), "./node7");
    EXPECT_EQ(key_folder("a/node7/"), "a/node7");
    ::unsetenv("HOME");
    EXPECT_EQ(credentials::try_from_folder("node7").code(), errc::invalid);
    EXPECT_EQ(credentials::try_from_folder("").code(), errc::invalid);
    if (home_before != nullptr) ::setenv("HOME", home.c_str(), 1);
}

TEST_F(credentials_test, missing_files_are_named) {
    for (const char* each : {"certificate.pem", "key.pem", "authority.pem"}) {
        files::rename(node + "/" + each, node + "/gone");
        expect_refused(errc::not_found, node + "/" + each);
        files::rename(node + "/gone", node + "/" + each);
    }
    EXPECT_EQ(credentials::try_from_folder("/nowhere/at/all").code(), errc::not_found);
}

TEST_F(credentials_test,
       a_fifo_a_device_or_a_folder_in_place_of_a_file_is_named_and_not_waited_for) {
    for (const char* each : {"certificate.pem", "key.pem", "authority.pem", "revoked.pem"}) {
        const std::string path = node + "/" + each;
        files::rename(path, node + "/kept");
        ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
        expect_refused(errc::invalid, path + "\" is not a file");
        files::remove(path);
        files::create_symlink("/dev/zero", path);
        expect_refused(errc::invalid, path + "\" is not a file");
        files::remove(path);
        files::create_directory(path);
        expect_refused(errc::invalid, path + "\" is not a file");
        files::remove(path);
        files::rename(node + "/kept", path);
    }
    EXPECT_TRUE(credentials::try_from_folder(node));
}

TEST_F(credentials_test, a_revocation_list_may_be_absent_from_a_folder_but_not_from_named_files) {
    files::remove(node + "/revoked.pem");
    const auto got = credentials::from_folder(node);
    EXPECT_NE(got->explain().find("no revocation list"), std::string::npos) << got->explain();
    EXPECT_EQ(credentials::try_from_files(files_in(node)).code(), errc::not_found);
    EXPECT_EQ(code_of([&] { (void)credentials::from_files(files_in(node)); }), errc::not_found);
}

TEST_F(credentials_test, an_authority_that_everybody_could_replace_is_refused) {
    const std::string file = node + "/authority.pem";
    ::chmod(file.c_str(), 0646);
    expect_refused(errc::denied, "\"" + file + "\" can be written by everybody on this host");
    ::chmod(file.c_str(), 0664);
    EXPECT_TRUE(credentials::try_from_folder(node)) << "a group is some, who are meant";
    ::chmod(node.c_str(), 0777);
    expect_refused(errc::denied, "\"" + node + "/\" can be written by everybody on this host");
    ::chmod(node.c_str(), 01777);
    EXPECT_TRUE(credentials::try_from_folder(node)) << "as in /tmp";
    ::chmod(node.c_str(), 0700);
    // Nor is it taken when it becomes so.
    const auto all = credentials::from_folder(node);
    ::chmod(file.c_str(), 0666);
    EXPECT_EQ(all->reload().code(), errc::denied);
}

TEST_F(credentials_test, who_may_replace_a_folder_above_or_behind_a_link_could_decide_too) {
    ::chmod(here.path().c_str(), 0777);
    expect_refused(errc::denied, "\"" + here.path() + "/\" can be written by everybody");
    ::chmod(here.path().c_str(), 0700);
    EXPECT_TRUE(credentials::try_from_folder(node));
    for (const char* each : {"authority.pem", "revoked.pem"}) {
        const temp_folder shared;
        const std::string file = node + "/" + each;
        files::rename(file, here.with("kept"));
        files::create_symlink(shared.with("one.pem", content(here.with("kept"))), file);
        EXPECT_TRUE(credentials::try_from_folder(node));
        ::chmod(shared.path().c_str(), 0777);
        expect_refused(errc::denied, "\"" + shared.path() + "/\" can be written by everybody");
        files::remove(file);
        files::rename(here.with("kept"), file);
    }
}

TEST_F(credentials_test, a_revocation_list_that_everybody_could_replace_is_refused) {
    const std::string file = node + "/revoked.pem";
    ::chmod(file.c_str(), 0646);
    expect_refused(errc::denied, "\"" + file + "\" can be written by everybody on this host");
    ::chmod(file.c_str(), 0644);
    EXPECT_TRUE(credentials::try_from_folder(node));
    const temp_folder elsewhere;
    credential_parts parts = files_in(node);
    parts.revoked = elsewhere.with("list.pem", content(file));
    EXPECT_TRUE(credentials::try_from_files(parts));
    ::chmod(elsewhere.path().c_str(), 0777);
    EXPECT_EQ(credentials::try_from_files(parts).code(), errc::denied);
}

TEST_F(credentials_test, a_link_to_nothing_is_no_list_that_is_absent) {
    files::remove(node + "/revoked.pem");
    files::create_symlink(node + "/not_mounted/revoked.pem", node + "/revoked.pem");
    expect_refused(errc::not_found, node + "/revoked.pem");
}

TEST_F(credentials_test, a_key_that_others_can_read_is_refused_before_it_is_read) {
    for (const mode_t mode : {0644u, 0640u, 0604u, 0660u, 0601u}) {
        ::chmod((node + "/key.pem").c_str(), mode);
        expect_refused(errc::denied, "chmod 600 " + node + "/key.pem");
    }
    ::chmod((node + "/key.pem").c_str(), 0400);
    EXPECT_TRUE(credentials::try_from_folder(node));
}

TEST_F(credentials_test, parts_that_do_not_fit_or_cannot_be_read_say_what_they_are) {
    const credential_parts good = text_in(node);
    const credential_parts other = text_in(here.add("other"));
    const auto key_file = [&](const std::string& text) { write("key.pem", text); };

    key_file(other.key);
    expect_refused(errc::invalid, "is not the private key of the certificate");
    key_file(good.certificate);
    expect_refused(errc::invalid, "holds no private key");
    key_file("");
    expect_refused(errc::invalid, "holds no private key");
    key_file(good.key.substr(0, good.key.size() / 2));
    expect_refused(errc::invalid, "damaged private key");
    key_file("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    expect_refused(errc::invalid, "damaged private key");
    key_file(std::string(100000, 'x'));
    expect_refused(errc::invalid, "is longer than");
    key_file(good.key);

    write("certificate.pem", "hello");
    expect_refused(errc::invalid, "-----BEGIN CERTIFICATE-----");
    write("certificate.pem", good.certificate.substr(0, 200));
    expect_refused(errc::invalid, "damaged certificate");
    write("certificate.pem", good.certificate);

    write("authority.pem", good.certificate);
    expect_refused(errc::invalid, "is not an authority's");
    write("authority.pem", "");
    expect_refused(errc::invalid, "holds no certificate");
    write("authority.pem", good.authority);

    const lab_folder another;
    write("revoked.pem", content(another.lab + "/revoked.pem"));
    expect_refused(errc::invalid, "is not signed by an authority in");
    write("revoked.pem", good.certificate);
    expect_refused(errc::invalid, "holds no revocation list");
    write("revoked.pem", "");
    expect_refused(errc::invalid, "is empty, expected a revocation list");
    write("revoked.pem", " \n");
    expect_refused(errc::invalid, "is empty, expected a revocation list");
}

TEST_F(credentials_test, an_encrypted_key_is_refused_and_no_terminal_is_asked) {
    const auto key = detail::private_key_in(content(node + "/key.pem"), "key").value();
    const detail::openssl_ptr<BIO> to(BIO_new(BIO_s_mem()));
    ASSERT_EQ(PEM_write_bio_PKCS8PrivateKey(to.get(), key.get(), EVP_aes_128_cbc(), "secret", 6,
                                            nullptr, nullptr),
              1);
    char* text = nullptr;
    const long size = BIO_get_mem_data(to.get(), &text);
    write("key.pem", std::string(text, static_cast<std::size_t>(size)));
    expect_refused(errc::invalid, "is encrypted");
    write("key.pem",
          "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"
          "DEK-Info: AES-128-CBC,00\n\nAAAA\n-----END EC PRIVATE KEY-----\n");
    expect_refused(errc::invalid, "is encrypted");
}

TEST_F(credentials_test, one_that_has_expired_or_is_not_valid_yet_says_since_or_until_when) {
    here.end_at(node, std::chrono::system_clock::now() - 1min);
    expect_refused(errc::invalid, "certificate.pem\" has expired on 20");
    const auto own = detail::certificates_in(content(node + "/certificate.pem"), "own").value();
    const auto early = std::chrono::system_clock::now() - 24h;
    const auto valid = detail::check_time(*own.front(), early);
    EXPECT_EQ(valid.code(), errc::denied);
    EXPECT_NE(valid.sentence().find("is not valid before 20"), std::string::npos);
}

TEST_F(credentials_test, an_authority_that_has_expired_is_refused_where_no_other_is_valid) {
    const auto key = detail::generate_key(key_algorithm::ed25519);
    const auto end = std::chrono::system_clock::now() - 1min;
    const std::string good = content(node + "/authority.pem"),
                      expired = detail::to_pem(*detail::make_authority("old", *key, end));
    write("authority.pem", expired);
    expect_refused(errc::invalid, "authority.pem\" has expired on 20");
    write("authority.pem", good + expired);
    EXPECT_TRUE(credentials::try_from_folder(node));
}

TEST_F(credentials_test, a_revocation_list_that_has_expired_or_is_of_some_certificates_is_refused) {
    const auto by = detail::certificates_in(content(here.lab + "/certificate.pem"), "lab").value();
    const auto by_key = detail::private_key_in(content(here.lab + "/key.pem"), "lab").value();
    const auto expect_refused_with = [&](auto change, const char* why) {
        const auto list = detail::make_list(nullptr, nullptr, *by.front(), *by_key);
        change(list.get());
        ASSERT_GT(X509_CRL_sign(list.get(), by_key.get(), nullptr), 0);
        write("revoked.pem", detail::to_pem(*list));
        expect_refused(errc::invalid, why);
    };
    expect_refused_with(
        [](X509_CRL* list) {
            const detail::openssl_ptr<ASN1_TIME> past(X509_gmtime_adj(nullptr, -60));
            EXPECT_EQ(X509_CRL_set1_nextUpdate(list, past.get()), 1);
        },
        "has expired on 20");
    for (const bool first : {false, true})
        expect_refused_with(
            [first](X509_CRL* list) {
                while (first && X509_CRL_get_ext_count(list) > 0)
                    X509_EXTENSION_free(X509_CRL_delete_ext(list, 0));
                const detail::openssl_ptr<ASN1_STRING> base(ASN1_INTEGER_new());
                EXPECT_EQ(ASN1_INTEGER_set_uint64(base.get(), 1), 1);
                EXPECT_EQ(
                    X509_CRL_add1_ext_i2d(list, NID_delta_crl, base.get(), 1, X509V3_ADD_DEFAULT),
                    1);
            },
            "is not complete");
    expect_refused_with(
        [](X509_CRL* list) {
            X509V3_CTX about{};
            X509V3_set_ctx(&about, nullptr, nullptr, nullptr, list, 0);
            const detail::openssl_ptr<X509_EXTENSION> part(X509V3_EXT_conf_nid(
                nullptr, &about, NID_issuing_distribution_point, "onlyuser:TRUE"));
            ASSERT_NE(part, nullptr);
            EXPECT_EQ(X509_CRL_add_ext(list, part.get(), 0), 1);
        },
        "is not complete");
}

TEST_F(credentials_test, pre_shared_keys_stand_beside_nothing_else) {
    const std::string keys = "node:" + std::string(64, '7') + "\n";
    ASSERT_TRUE(credentials::try_from_text({.shared_keys = keys}));
    const credential_parts all = text_in(node);
    for (const auto part : {&credential_parts::certificate, &credential_parts::key,
                            &credential_parts::authority, &credential_parts::revoked}) {
        credential_parts parts{.shared_keys = keys};
        parts.*part = all.*part;
        EXPECT_EQ(credentials::try_from_text(parts).code(), errc::invalid);
    }
    const key_fingerprint own = credentials::from_folder(node)->self().key;
    const auto both = credentials::try_from_text({.trusted_keys = {own}, .shared_keys = keys});
    EXPECT_EQ(both.code(), errc::invalid);
}

TEST_F(credentials_test, trusted_keys_are_instead_of_an_authority) {
    credential_parts parts = text_in(node);
    const auto refused = [&] { return credentials::try_from_text(parts).sentence(); };
    parts.trusted_keys = {credentials::from_folder(node)->self().key};
    EXPECT_NE(refused().find("name both"), std::string::npos) << refused();
    parts.authority.clear();
    EXPECT_NE(refused().find("have a revocation list"), std::string::npos) << refused();
    parts.revoked.clear();
    const auto got = credentials::from_text(parts);
    EXPECT_NE(got->explain().find("trusts 1 keys"), std::string::npos) << got->explain();
    parts.trusted_keys.clear();
    EXPECT_NE(refused().find("nobody they trust"), std::string::npos) << refused();
    parts.key.clear();
    EXPECT_NE(refused().find("lack a certificate or its private key"), std::string::npos);
}

TEST_F(credentials_test, a_key_that_is_too_short_for_tls_is_refused_when_it_is_read) {
    const detail::pkey_ptr weak(EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", std::size_t{1024}));
    const auto by = detail::certificates_in(content(here.lab + "/certificate.pem"), "lab").value();
    const auto by_key = detail::private_key_in(content(here.lab + "/key.pem"), "lab").value();
    const auto made = detail::make_certificate(
        {"weak", {}, {}}, *weak, std::chrono::system_clock::now() + 1h, *by.front(), *by_key);
    write("key.pem", std::string(detail::to_pem(*weak).text()));
    write("certificate.pem", detail::to_pem(*made));
    expect_refused(errc::invalid, "cannot be used for TLS");
}

TEST_F(credentials_test, files_that_changed_are_read_again_by_reload) {
    const auto got = credentials::from_folder(node);
    const auto first = got->expires();
    sign_key(node, here.lab, {.days = 30, .overwrite = true});
    EXPECT_EQ(got->expires(), first);
    ASSERT_TRUE(got->reload());
    EXPECT_LT(got->expires(), first);

    write("certificate.pem", "half a certifi");
    const auto failed = got->reload();
    EXPECT_EQ(failed.code(), errc::invalid);
    EXPECT_NE(failed.sentence().find("certificate.pem"), std::string::npos);
    EXPECT_EQ(got->self().name, "node") << "the old stay in force";
}

TEST_F(credentials_test, files_that_changed_are_read_again_by_themselves_once_a_second) {
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    const auto start = std::chrono::steady_clock::now() + 1h;  // Looked at last before.
    const auto first = store->current(start);
    EXPECT_EQ(store->current(start + detail::limits::credentials_interval), first) << "unchanged";
    sign_key(node, here.lab, {.days = 30, .overwrite = true});
    const auto change = start + detail::limits::credentials_interval;
    EXPECT_EQ(store->current(change + detail::limits::credentials_interval - 1ns), first);
    const auto second = store->current(change + detail::limits::credentials_interval);
    EXPECT_NE(second, first);
    EXPECT_LT(second->expires(), first->expires());
}

TEST_F(credentials_test, a_change_of_any_of_the_files_is_seen) {
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    auto now = std::chrono::steady_clock::now() + 1h;
    auto before = store->current(now);
    for (const char* each : {"certificate.pem", "key.pem", "authority.pem", "revoked.pem"}) {
        write(each, content(node + "/" + each) + "\n");
        now += detail::limits::credentials_interval;
        const auto after = store->current(now);
        EXPECT_NE(after, before) << each;
        before = after;
    }
}

TEST_F(credentials_test, a_change_that_no_descriptor_was_left_for_is_taken_a_second_later) {
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    const auto start = std::chrono::steady_clock::now() + 1h;
    const auto first = store->current(start);
    revoke_key(here.add("bad"), here.lab);
    write("revoked.pem", content(here.lab + "/revoked.pem"));
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{0, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    const auto then = store->current(start + detail::limits::credentials_interval);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(then, first);
    const auto later = store->current(start + 2 * detail::limits::credentials_interval);
    EXPECT_NE(later->explain().find("(1 revoked)"), std::string::npos) << later->explain();
}

TEST_F(credentials_test, certificates_change_under_threads_that_begin_handshakes) {
    files::copy_file(node + "/key.pem", here.with("key"));
    const auto shared = credentials::from_folder(node);
    std::atomic<bool> ended{false};
    std::vector<std::thread> ports;
    for (int i = 0; i < 3; ++i)
        ports.emplace_back([&, i] {
            detail::tls_contexts contexts(shared);
            auto now = std::chrono::steady_clock::now() + i * 1h;
            while (!ended) {
                now += detail::limits::credentials_interval;  // Looks at the files each time.
                EXPECT_EQ(shared->store().current(now)->self().name, "node");
                EXPECT_TRUE(contexts.accepting());
                EXPECT_TRUE(contexts.connecting());
            }
        });
    for (unsigned days = 1; days <= 20; ++days) {
        sign_key(node, here.lab, {.days = days, .overwrite = true});
        if (days % 5 == 0) write("key.pem", "half a key");
        if (days % 5 == 0)
            files::copy_file(here.with("key"), node + "/key.pem",
                             files::copy_options::overwrite_existing);
    }
    ended = true;
    for (std::thread& each : ports)
        each.join();
    ASSERT_TRUE(shared->reload());
    EXPECT_GT(shared->expires(), std::chrono::system_clock::now() + 19 * 24h);
}

TEST_F(credentials_test, what_was_revoked_stays_so_when_the_list_vanishes) {
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    const auto first = store->in_force();
    files::rename(node + "/revoked.pem", node + "/gone");
    EXPECT_EQ(store->reload().code(), errc::not_found);
    EXPECT_EQ(store->in_force(), first);
    files::rename(node + "/gone", node + "/revoked.pem");
    EXPECT_TRUE(store->reload());
}

TEST_F(credentials_test, what_was_revoked_stays_so_whatever_the_file_becomes) {
    const std::string list = node + "/revoked.pem", older = content(list);
    const std::string bad = here.add("bad");
    revoke_key(bad, here.lab);
    const std::string newest = content(here.lab + "/revoked.pem");
    ASSERT_NE(newest, older);
    write("revoked.pem", newest);
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    const auto first = store->in_force();
    for (const std::string& now : {std::string(), std::string("\n"), older,
                                   newest.substr(0, newest.size() / 2), std::string("no list")}) {
        write("revoked.pem", now);
        EXPECT_EQ(store->reload().code(), errc::invalid) << now;
        EXPECT_EQ(store->in_force(), first) << now;
    }
    files::remove(list);
    EXPECT_EQ(store->reload().code(), errc::not_found);
    EXPECT_EQ(store->in_force(), first);
    write("revoked.pem", newest);
    EXPECT_TRUE(store->reload());
}

TEST_F(credentials_test, what_is_revoked_once_the_own_certificate_has_expired_is_refused) {
    const std::string bad = here.add("bad");
    // Certificates have whole seconds.
    here.end_at(node, std::chrono::system_clock::now() + 2s);
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    while (std::chrono::system_clock::now() <= store->in_force()->expires())
        std::this_thread::sleep_for(10ms);
    expect_refused(errc::invalid, "has expired on");
    revoke_key(bad, here.lab);
    write("revoked.pem", content(here.lab + "/revoked.pem"));
    EXPECT_TRUE(store->reload()) << store->reload().sentence();
    const auto shown = detail::loaded_credentials::from_files(files_in(bad)).value();
    EXPECT_FALSE(
        detail::verified_signer::of(*store->in_force(), detail::certificate_bytes(*shown)));
    // Another one that has expired is refused, as at the start.
    here.end_at(node, std::chrono::system_clock::now() - 1min);
    EXPECT_EQ(store->reload().code(), errc::invalid);
    sign_key(node, here.lab, {.overwrite = true});
    EXPECT_TRUE(store->reload());
    EXPECT_GT(store->in_force()->expires(), std::chrono::system_clock::now());
}

TEST_F(credentials_test, an_authority_that_is_taken_out_takes_its_list_with_it) {
    const temp_folder elsewhere;
    const std::string second = elsewhere.with("lab2");
    make_key(second, {.name = "lab2", .authority = true});
    const std::string one = content(node + "/authority.pem"), list = content(node + "/revoked.pem");
    write("authority.pem", one + content(second + "/certificate.pem"));
    write("revoked.pem", list + content(second + "/revoked.pem"));
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    EXPECT_NE(store->in_force()->explain().find("lab2"), std::string::npos);
    write("authority.pem", one);
    ASSERT_TRUE(store->reload()) << store->reload().sentence();
    EXPECT_EQ(store->in_force()->explain().find("lab2"), std::string::npos);
    // And back: its list must be there, too.
    write("revoked.pem", list);
    EXPECT_TRUE(store->reload());
}

TEST_F(credentials_test, an_authority_that_comes_back_does_not_take_back_what_it_revoked) {
    const temp_folder elsewhere;
    const std::string second = elsewhere.with("lab2"), bad = here.add("bad");
    make_key(second, {.name = "lab2", .authority = true});
    const std::string both =
        content(node + "/authority.pem") + content(second + "/certificate.pem");
    const std::string older = content(node + "/revoked.pem");
    revoke_key(bad, here.lab);
    const std::string newest = content(here.lab + "/revoked.pem");
    write("authority.pem", both);
    write("revoked.pem", newest);
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    const std::string of_second = content(second + "/revoked.pem");
    for (int round = 0; round < 2; ++round) {
        write("authority.pem", content(second + "/certificate.pem"));
        write("revoked.pem", round == 0 ? newest + of_second : of_second);
        ASSERT_TRUE(store->reload()) << store->reload().sentence();
        const auto without = store->in_force();
        write("authority.pem", both);
        for (const std::string& list : {older, of_second}) {
            write("revoked.pem", list);
            EXPECT_EQ(store->reload().code(), errc::invalid) << list;
            EXPECT_EQ(store->in_force(), without);
        }
        write("revoked.pem", newest + of_second);
        EXPECT_TRUE(store->reload()) << store->reload().sentence();
    }
}

TEST_F(credentials_test, two_authorities_of_one_name_keep_their_lists_apart) {
    const lab_folder other;  // Of the same subject.
    const std::string mine = content(here.lab + "/revoked.pem");
    const std::string bad = here.add("bad"), theirs = other.add("theirs");
    revoke_key(bad, here.lab);
    revoke_key(here.add("worse"), here.lab);
    const std::string newest = content(here.lab + "/revoked.pem"),
                      others = content(other.lab + "/revoked.pem");
    write("authority.pem",
          content(here.lab + "/certificate.pem") + content(other.lab + "/certificate.pem"));
    for (const std::string& both : {newest + others, others + newest}) {
        write("revoked.pem", both);
        auto store = detail::credential_store::of_files(files_in(node), true).value();
        EXPECT_TRUE(store->reload()) << store->reload().sentence();
        const auto refuses = [&](const std::string& folder) {
            const auto shown = detail::loaded_credentials::from_files(files_in(folder)).value();
            return !detail::verified_signer::of(*store->in_force(),
                                                detail::certificate_bytes(*shown));
        };
        EXPECT_TRUE(refuses(bad));
        EXPECT_FALSE(refuses(theirs));
        // One authority's number is not held against the other's, whichever comes first.
        for (const std::string& now : {mine + others, others + mine, others}) {
            write("revoked.pem", now);
            EXPECT_EQ(store->reload().code(), errc::invalid);
        }
        revoke_key(theirs, other.lab);
        write("revoked.pem", content(other.lab + "/revoked.pem") + newest);
        EXPECT_TRUE(store->reload()) << store->reload().sentence();
        EXPECT_TRUE(refuses(bad) && refuses(theirs));
    }
}

TEST_F(credentials_test, an_authority_gives_way_to_another_of_its_name_and_its_list_does_no_harm) {
    const lab_folder other;
    revoke_key(here.add("bad"), here.lab);
    const std::string lists =
        content(here.lab + "/revoked.pem") + content(other.lab + "/revoked.pem");
    write("authority.pem",
          content(here.lab + "/certificate.pem") + content(other.lab + "/certificate.pem"));
    write("revoked.pem", lists);
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    write("authority.pem", content(other.lab + "/certificate.pem"));
    EXPECT_TRUE(store->reload()) << store->reload().sentence();
    EXPECT_NE(store->in_force()->explain().find("(0 revoked)"), std::string::npos);
    // A list of the one that is left, but not as it was signed, is not passed over.
    auto changed = detail::revocation_lists_in(content(other.lab + "/revoked.pem"), "list").value();
    ASSERT_GT(X509_CRL_sign(changed.front().get(),
                            detail::generate_key(key_algorithm::ed25519).get(), nullptr),
              0);
    write("revoked.pem", lists + detail::to_pem(*changed.front()));
    expect_refused(errc::invalid, "is not signed by an authority in");
}

TEST_F(credentials_test, of_several_lists_of_an_authority_the_newest_is_in_force) {
    const std::string first = content(here.lab + "/revoked.pem");
    const std::string bad = here.add("bad");
    revoke_key(bad, here.lab);
    const std::string second = content(here.lab + "/revoked.pem");
    for (const std::string& both : {first + second, second + first}) {
        write("revoked.pem", both);
        auto store = detail::credential_store::of_files(files_in(node), true).value();
        EXPECT_NE(store->in_force()->explain().find("(1 revoked)"), std::string::npos)
            << store->in_force()->explain();
        EXPECT_TRUE(store->reload()) << store->reload().sentence();
    }
}

TEST_F(credentials_test, lists_without_numbers_and_with_large_ones_do_not_go_back) {
    const auto by = detail::certificates_in(content(here.lab + "/certificate.pem"), "lab").value();
    const auto by_key = detail::private_key_in(content(here.lab + "/key.pem"), "lab").value();
    const auto list = [&](const char* number, long began) {
        const auto made = detail::make_list(nullptr, nullptr, *by.front(), *by_key);
        X509_EXTENSION_free(X509_CRL_delete_ext(
            made.get(), X509_CRL_get_ext_by_NID(made.get(), NID_crl_number, -1)));
        if (number != nullptr) {
            BIGNUM* value = nullptr;
            BN_hex2bn(&value, number);
            const detail::openssl_ptr<BIGNUM> kept(value);
            const detail::openssl_ptr<ASN1_STRING> whole(BN_to_ASN1_INTEGER(value, nullptr));
            EXPECT_EQ(X509_CRL_add1_ext_i2d(made.get(), NID_crl_number, whole.get(), 0, 0), 1);
        }
        const detail::openssl_ptr<ASN1_TIME> when(X509_gmtime_adj(nullptr, began));
        EXPECT_EQ(X509_CRL_set1_lastUpdate(made.get(), when.get()), 1);
        EXPECT_GT(X509_CRL_sign(made.get(), by_key.get(), nullptr), 0);
        return detail::to_pem(*made);
    };
    for (const char* number : {static_cast<const char*>(nullptr), "1234567890ABCDEF1234567890AB"}) {
        write("revoked.pem", list(number, -60));
        auto store = detail::credential_store::of_files(files_in(node), true).value();
        write("revoked.pem", list(number, -120));
        EXPECT_EQ(store->reload().code(), errc::invalid);
        write("revoked.pem", list(number, -30));
        EXPECT_TRUE(store->reload()) << store->reload().sentence();
    }
    // The next one has the next number, however long.
    auto large = detail::revocation_lists_in(list("FFFFFFFFFFFFFFFF", -60), "list").value();
    const auto next = detail::make_list(large.front().get(), nullptr, *by.front(), *by_key);
    const detail::openssl_ptr<ASN1_STRING> number(static_cast<ASN1_INTEGER*>(
        X509_CRL_get_ext_d2i(next.get(), NID_crl_number, nullptr, nullptr)));
    EXPECT_EQ(detail::serial_of(number.get()), "010000000000000000");
}

TEST_F(credentials_test,
       a_list_that_says_it_is_for_another_certificate_of_its_authority_is_refused) {
    const auto by = detail::certificates_in(content(here.lab + "/certificate.pem"), "lab").value();
    const auto by_key = detail::private_key_in(content(here.lab + "/key.pem"), "lab").value();
    const auto renewed =
        detail::make_authority("lab", *by_key, std::chrono::system_clock::now() + 1h);
    const auto list = detail::make_list(nullptr, nullptr, *by.front(), *by_key);
    X509_EXTENSION_free(X509_CRL_delete_ext(
        list.get(), X509_CRL_get_ext_by_NID(list.get(), NID_authority_key_identifier, -1)));
    X509V3_CTX about{};
    X509V3_set_ctx(&about, renewed.get(), nullptr, nullptr, list.get(), 0);
    const detail::openssl_ptr<X509_EXTENSION> which(X509V3_EXT_conf_nid(
        nullptr, &about, NID_authority_key_identifier, "keyid:always,issuer:always"));
    ASSERT_NE(which, nullptr);
    ASSERT_EQ(X509_CRL_add_ext(list.get(), which.get(), -1), 1);
    ASSERT_GT(X509_CRL_sign(list.get(), by_key.get(), nullptr), 0);
    write("revoked.pem", detail::to_pem(*list));
    expect_refused(errc::invalid, "is for another certificate of that authority");
    write("authority.pem", detail::to_pem(*renewed));
    EXPECT_TRUE(credentials::try_from_folder(node));
}

TEST_F(credentials_test, a_list_that_comes_later_is_taken) {
    files::rename(node + "/revoked.pem", node + "/later");
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    EXPECT_FALSE(store->in_force()->has_revocation_lists());
    files::rename(node + "/later", node + "/revoked.pem");
    const auto later = std::chrono::steady_clock::now() + 1h;
    EXPECT_TRUE(store->current(later)->has_revocation_lists());
}

}  // namespace
}  // namespace amalgam
