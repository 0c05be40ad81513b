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
#include <sys/stat.h>

#include <amalgam/fabric/credentials.hpp>

#include "fabric/trust/credentials/credential_store.hpp"
#include "fabric/trust/credentials/credentials_testing.hpp"
#include "fabric/trust/keys/trusted_keys.hpp"
#include "fabric/trust/tls/tls_contexts.hpp"
#include "scarce_resources.hpp"

namespace amalgam {
namespace {

namespace files = std::filesystem;
using namespace std::chrono_literals;

credential_parts text_in(const std::string& folder) {
    const credential_parts at = files_in(folder);
    return {.certificate = content(at.certificate),
            .key = content(at.key),
            .authority = content(at.authority),
            .revoked = content(at.revoked)};
}

using credentials_test = credentials_folder;

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

/// Credentials that trust keys, and no authority.
class trusted_list : public credentials_folder {
protected:
    trusted_list() {
        make_key(here.with("other"), {.name = "other", .self_signed = true});
        other = *read_key_parts(here.with("other/key.pem")).front().fingerprint;
        for (const char* each : {"authority.pem", "revoked.pem"})
            files::rename(node + "/" + each, here.with(each));
        write("trusted.keys", to_text(other) + "\n");
    }
    std::string trusts() const { return credentials::from_folder(node)->explain(); }

    key_fingerprint other;
};

TEST_F(trusted_list, is_read_by_lines_between_blanks_and_comments) {
    const std::string key = to_text(other);
    EXPECT_TRUE(trusts().ends_with("trusts 1 keys")) << trusts();
    for (const std::string& text :
         {key, "\n \t\n# a comment\n" + key + "# behind it\n#" + key, "  " + key + " \r\n\r\n"}) {
        write("trusted.keys", text);
        const auto got = credentials::try_from_folder(node);
        ASSERT_TRUE(got) << got.sentence();
        EXPECT_TRUE((*got)->store().in_force()->trusts(other)) << text;
        EXPECT_TRUE((*got)->explain().ends_with("trusts 1 keys")) << text;
    }
    // As paths, and as text, beside those that a program names.
    const credential_parts at = files_in(node);
    const key_fingerprint own = credentials::from_folder(node)->self().key;
    credential_parts parts{.certificate = at.certificate,
                           .key = at.key,
                           .trusted_keys = {own},
                           .trusted_list = node + "/trusted.keys"};
    EXPECT_TRUE(credentials::from_files(parts)->explain().ends_with("trusts 2 keys"));
    parts.certificate = content(at.certificate);
    parts.key = content(at.key);
    parts.trusted_list = key;
    EXPECT_TRUE(credentials::from_text(parts)->explain().ends_with("trusts 2 keys"));
    parts.authority = content(here.with("authority.pem"));
    EXPECT_EQ(credentials::try_from_text(parts).code(), errc::invalid);
}

TEST_F(trusted_list, mistakes_are_told_with_file_and_line) {
    const std::string key = to_text(other), file = "\"" + node + "/trusted.keys\"";
    const std::pair<std::string, std::string> all[] = {
        {"\n# a\nnode7\n", "line 3 of " + file + " is not the fingerprint of a key"},
        {key + "\n" + key.substr(1), "line 2 of " + file},
        {key + "0", "line 1 of " + file},
        {key + " " + key, "line 1 of " + file},
        {key.substr(0, 63) + "g", "line 1 of " + file},
        {std::string(64, '\0'), "line 1 of " + file},
        {"", file + " has no key, so that nobody would be trusted"},
        {"# " + key, file + " has no key"},
        {std::string(5 << 20, '\n'), "is longer than 4 MiB, expected a file of trusted keys"},
    };
    for (const auto& [text, expected] : all) {
        write("trusted.keys", text);
        expect_refused(errc::invalid, expected);
    }
    std::string most;
    for (std::size_t i = 0; i < detail::most_trusted_keys; ++i)
        most += key + "\n";
    write("trusted.keys", most);
    EXPECT_TRUE(credentials::try_from_folder(node));
    write("trusted.keys", most + "\n" + key);
    expect_refused(errc::invalid, "has more than 1024 keys, the next one in line 1026");
    files::remove(node + "/trusted.keys");
    ASSERT_EQ(::mkfifo((node + "/trusted.keys").c_str(), 0600), 0);
    expect_refused(errc::invalid, "is not a file, expected a file of trusted keys");
}

TEST_F(trusted_list, stands_beside_no_authority_and_no_other_kind_of_key) {
    const std::pair<const char*, const char*> all[] = {
        {"authority.pem", "has trusted.keys beside authority.pem, expected one of them"},
        {"revoked.pem", "has trusted.keys beside revoked.pem, expected one of them"},
        {"shared.keys", "expected one kind"}};
    for (const auto& [file, expected] : all) {
        write(file, "");
        expect_refused(errc::invalid, expected);
        files::remove(node + "/" + file);
    }
    files::remove(node + "/certificate.pem");
    write("shared.keys", "");
    expect_refused(errc::invalid, "has trusted.keys beside shared.keys");
}

TEST_F(trusted_list, that_everybody_could_replace_is_refused) {
    const std::string file = node + "/trusted.keys";
    ::chmod(file.c_str(), 0646);
    expect_refused(errc::denied, "\"" + file + "\" can be written by everybody on this host");
    ::chmod(file.c_str(), 0664);
    EXPECT_TRUE(credentials::try_from_folder(node)) << "a group is some, who are meant";
    ::chmod(node.c_str(), 0777);
    expect_refused(errc::denied, "\"" + node + "/\" can be written by everybody on this host");
    ::chmod(node.c_str(), 0700);
    const temp_folder shared;
    files::rename(file, shared.with("list"));
    files::create_symlink(shared.with("list"), file);
    const auto all = credentials::from_folder(node);
    ::chmod(shared.path().c_str(), 0777);
    expect_refused(errc::denied, "\"" + shared.path() + "/\" can be written by everybody");
    EXPECT_EQ(all->reload().code(), errc::denied) << "nor is it taken when it becomes so";
}

TEST_F(trusted_list, that_changes_is_read_again_by_itself_also_when_the_last_key_goes) {
    auto store = detail::credential_store::of_files({.certificate = node + "/certificate.pem",
                                                     .key = node + "/key.pem",
                                                     .trusted_list = node + "/trusted.keys"},
                                                    false)
                     .value();
    const auto after = [&](const std::string& text) {
        write("trusted.keys", text);
        store->look();
        return store->current();
    };
    const key_fingerprint own = store->in_force()->self().key;
    const auto both = after(to_text(other) + "\n" + to_text(own) + "\n");
    EXPECT_TRUE(both->trusts(other) && both->trusts(own));
    const auto one = after(to_text(own) + "\n");
    EXPECT_TRUE(!one->trusts(other) && one->trusts(own));
    EXPECT_EQ(after("half a li"), one) << "what cannot be read changes nothing";
    const auto none = after("# all gone\n");
    EXPECT_FALSE(none->trusts(own));
    EXPECT_TRUE(none->trusts_by_key()) << "and no authority is trusted in their place";
    EXPECT_TRUE(after(to_text(other))->trusts(other));
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

TEST_F(credentials_test, a_change_of_any_of_the_files_is_seen) {
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    auto before = store->in_force();
    for (const char* each : {"certificate.pem", "key.pem", "authority.pem", "revoked.pem"}) {
        write(each, content(node + "/" + each) + "\n");
        store->look();
        const auto after = store->in_force();
        EXPECT_NE(after, before) << each;
        before = after;
    }
}

TEST_F(credentials_test, a_change_that_no_descriptor_was_left_for_is_taken_by_the_next_look) {
    auto store = detail::credential_store::of_files(files_in(node), true).value();
    const auto first = store->in_force();
    revoke_key(here.add("bad"), here.lab);
    write("revoked.pem", content(here.lab + "/revoked.pem"));
    {
        const detail::few_descriptors none(0);
        store->look();
    }
    EXPECT_EQ(store->in_force(), first);
    store->look();
    const std::string later = store->in_force()->explain();
    EXPECT_NE(later.find("(1 revoked)"), std::string::npos) << later;
}

TEST_F(credentials_test, certificates_change_under_threads_that_begin_handshakes) {
    files::copy_file(node + "/key.pem", here.with("key"));
    const auto shared = credentials::from_folder(node);
    std::atomic<bool> ended{false};
    std::vector<std::thread> ports;
    for (int i = 0; i < 3; ++i)
        ports.emplace_back([&] {
            detail::tls_contexts contexts(shared);
            while (!ended) {
                shared->store().look();  // As the thread does.
                EXPECT_EQ(shared->store().current()->self().name, "node");
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

}  // namespace
}  // namespace amalgam
