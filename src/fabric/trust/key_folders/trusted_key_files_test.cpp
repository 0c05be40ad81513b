// Folders that trust keys by their fingerprints: made, changed and shown.
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/key_folder.hpp>

#include "contains.hpp"
#include "fabric/trust/key_folders/lab_testing.hpp"
#include "fabric/trust/keys/trusted_keys.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

namespace files = std::filesystem;

class trusted_key_files : public testing::Test {
protected:
    std::string self_signed(const std::string& name, std::vector<key_fingerprint> trusted = {}) {
        make_key(here.with(name),
                 {.name = name, .self_signed = true, .trusted = std::move(trusted)});
        return here.with(name);
    }
    static key_fingerprint key_of(const std::string& folder) {
        return *read_key_parts(folder + "/key.pem").front().fingerprint;
    }
    static std::string text_of(const std::string& folder) {
        return content(folder + "/trusted.keys");
    }
    /// One sentence of this code, which names `part`, and the folder's list is as before.
    template <typename Call>
    void expect_refused(errc code, const std::string& part, const std::string& folder, Call call) {
        const std::string before = text_of(folder);
        const error why = error_of(call);
        EXPECT_EQ(why.code(), code) << why.what();
        EXPECT_TRUE(contains(why.what(), part)) << why.what();
        EXPECT_FALSE(contains(why.what(), "\n")) << why.what();
        EXPECT_EQ(text_of(folder), before) << part;
    }

    const lab_folder here;
};

TEST_F(trusted_key_files, a_key_signs_itself_and_is_usable_once_it_trusts_another) {
    const std::string one = self_signed("one");
    EXPECT_TRUE(contains(credentials::try_from_folder(one).sentence(), "nobody would be trusted"));
    const std::string two = self_signed("two", {key_of(one)});
    EXPECT_TRUE(contains(trust_authority(one, to_text(key_of(two))), "trusts the key"));
    for (const std::string& each : {one, two}) {
        const auto got = credentials::from_folder(each);
        EXPECT_EQ(got->self().key, key_of(each));
        EXPECT_TRUE(contains(got->explain(), "trusts 1 keys")) << got->explain();
        EXPECT_FALSE(files::exists(each + "/request.pem")) << "no authority is asked";
        const auto own = detail::certificates_in(content(each + "/certificate.pem"), each).value();
        EXPECT_EQ(X509_check_ca(own.front().get()), 0) << "it signs nobody else";
        EXPECT_EQ(X509_verify(own.front().get(), X509_get0_pubkey(own.front().get())), 1);
        struct stat about {};
        ASSERT_EQ(::stat((each + "/trusted.keys").c_str(), &about), 0);
        EXPECT_EQ(about.st_mode & 07777, 0644u);
    }
}

TEST_F(trusted_key_files, keys_come_and_go_and_comments_stay) {
    const std::string node = self_signed("node"), one = self_signed("one"),
                      two = self_signed("two");
    std::ofstream(node + "/trusted.keys") << "# the lab's\n\n"
                                          << to_text(key_of(one)) << "  # Alice\n# end";
    EXPECT_TRUE(contains(trust_authority(node, two), "trusts the key " + to_text(key_of(two))))
        << "a folder stands for the key in it";
    EXPECT_EQ(text_of(node), "# the lab's\n\n" + to_text(key_of(one)) + "  # Alice\n# end\n" +
                                 to_text(key_of(two)) + "\n");
    EXPECT_TRUE(contains(trust_authority(node, to_text(key_of(two))), "already"));
    EXPECT_TRUE(contains(revoke_key(to_text(key_of(one)), node), "no longer trusts"));
    EXPECT_EQ(text_of(node), "# the lab's\n\n# end\n" + to_text(key_of(two)) + "\n");
    EXPECT_TRUE(contains(revoke_key(two + "/certificate.pem", node), "it trusts nobody now"));
    EXPECT_EQ(text_of(node), "# the lab's\n\n# end\n");
    expect_refused(errc::not_found, "does not have the key " + to_text(key_of(two)), node,
                   [&] { (void)revoke_key(two, node); });
}

TEST_F(trusted_key_files, a_key_that_comes_twice_is_taken_out_whole) {
    const std::string node = self_signed("node"), one = to_text(key_of(self_signed("one")));
    std::string capitals = one;
    for (char& c : capitals)
        if (c >= 'a') c = static_cast<char>(c - 'a' + 'A');
    std::ofstream(node + "/trusted.keys") << one << "\r\n\t" << capitals << "#\n" << one;
    (void)revoke_key(one, node);
    EXPECT_EQ(text_of(node), "");
}

TEST_F(trusted_key_files, a_fingerprint_is_taken_as_openssl_prints_it) {
    const std::string node = self_signed("node"), one = self_signed("one");
    std::string printed;
    for (const std::uint8_t each : key_of(one).bytes)
        printed += fmt::format("{}{:02X}", printed.empty() ? "" : ":", each);
    EXPECT_TRUE(contains(trust_authority(node, printed), to_text(key_of(one))));
    EXPECT_TRUE(text_of(node).ends_with("\n" + to_text(key_of(one)) + "\n")) << text_of(node);
    EXPECT_TRUE(contains(revoke_key(printed, node), "no longer trusts"));
    // Written so by hand.
    std::ofstream(node + "/trusted.keys") << printed << " # one\n";
    EXPECT_EQ(credentials::from_folder(node)->explain().find("trusts 1 keys") != std::string::npos,
              true);
    (void)revoke_key(to_text(key_of(one)), node);
    EXPECT_EQ(text_of(node), "");
}

TEST_F(trusted_key_files, what_is_almost_a_fingerprint_is_told_as_such_and_is_no_folder) {
    const std::string node = self_signed("node"), key = to_text(key_of(self_signed("one")));
    const std::pair<std::string, std::string> all[] = {
        {key.substr(1), "has 63 hexadecimal digits, not 64"},
        {key + "a", "has 65 hexadecimal digits, not 64"},
        {"AA:BB:CC:DD:EE:FF:AA:BB:CC:DD:EE:FF:AA:BB:CC:DD:EE:FF:AA:BB",
         "has 40 hexadecimal digits, not 64"},
        {"sha256 Fingerprint=AA:BB", "is of a certificate, as `openssl x509` prints it"}};
    for (const auto& each : all) {
        const std::string &text = each.first, &expected = each.second;
        expect_refused(errc::invalid, expected, node, [&] { (void)trust_authority(node, text); });
        expect_refused(errc::invalid, expected, node, [&] { (void)revoke_key(text, node); });
        // Also where the folder trusts nobody yet, or lost the list.
        files::rename(node + "/trusted.keys", here.with("kept"));
        expect_refused(errc::invalid, expected, node, [&] { (void)trust_authority(node, text); });
        files::rename(here.with("kept"), node + "/trusted.keys");
    }
}

TEST_F(trusted_key_files, a_folder_that_lost_its_list_says_how_to_make_it_again) {
    const key_fingerprint other = key_of(self_signed("other"));
    const std::string node = self_signed("node", {other});
    files::remove(node + "/trusted.keys");
    const auto lost = credentials::try_from_folder(node);
    EXPECT_EQ(lost.code(), errc::not_found);
    EXPECT_EQ(lost.sentence(), "\"" + node +
                                   "\" has a self-signed key and lacks trusted.keys, expected the "
                                   "fingerprints of the keys that it trusts; for each, which makes "
                                   "the file again: amalgam key trust " +
                                   node + " FINGERPRINT");
    (void)trust_authority(node, to_text(other));
    EXPECT_TRUE(credentials::try_from_folder(node)) << "as it was told";
    // The others are told what they lack.
    for (const std::string& each : {here.add("certified"), here.lab}) {
        files::remove(each + "/authority.pem");
        EXPECT_TRUE(contains(credentials::try_from_folder(each).sentence(),
                             "/authority.pem\" cannot be read"))
            << each;
    }
}

TEST_F(trusted_key_files, a_list_that_is_damaged_is_shown_as_what_it_should_be) {
    const std::string node = self_signed("node"), file = node + "/trusted.keys";
    const std::string like = "; example of a line: e3b0c44298fc1c149afbf4c8996fb924";
    const auto expect_told = [&](const std::string& expected) {
        for (const std::string& what : {node, file}) {
            const std::string told = error_of([&] { (void)describe_key(what); }).what();
            EXPECT_TRUE(contains(told, expected)) << told;
            EXPECT_TRUE(contains(told, "a file of trusted keys" + like)) << told;
            EXPECT_FALSE(contains(told, "PEM")) << told;
        }
        const std::string told = credentials::try_from_folder(node).sentence();
        EXPECT_TRUE(contains(told, expected) && contains(told, like)) << told;
    };
    std::ofstream(file) << "# two keys\n" << std::string(63, 'a') << '\n';
    expect_told("line 2 of \"" + file +
                "\" is not the fingerprint of a key: it has 63 hexadecimal digits, not 64");
    std::ofstream(file) << content(node + "/certificate.pem");
    expect_told("line 1 of \"" + file +
                "\" is not the fingerprint of a key: it is not 64 hexadecimal digits");
    std::ofstream(file) << std::string(5 << 20, '\n');
    expect_told("\"" + file + "\" is longer than 4 MiB, expected");
    files::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    expect_told("\"" + file + "\" is not a file, expected");
    files::remove(file);
    files::create_symlink(node + "/not_there", file);
    expect_told("\"" + file + "\" cannot be read (No such file or directory), expected");
}

TEST_F(trusted_key_files, whom_a_folder_trusts_is_shown) {
    const std::string node = self_signed("node");
    EXPECT_TRUE(
        contains(describe_key(node), node + "/trusted.keys: trusted keys\n  trusts       nobody\n"))
        << describe_key(node);
    const key_fingerprint one = key_of(self_signed("one")), two = key_of(self_signed("two"));
    (void)trust_authority(node, to_text(one));
    (void)trust_authority(node, to_text(two));
    const std::string rows =
        "trusted keys\n  trusts       " + to_text(one) + "\n  trusts       " + to_text(two) + "\n";
    EXPECT_TRUE(contains(describe_key(node), node + "/trusted.keys: " + rows))
        << describe_key(node);
    EXPECT_EQ(describe_key(node + "/trusted.keys"), rows);
    const auto parts = read_key_parts(node);
    ASSERT_EQ(parts.size(), 4u);
    EXPECT_EQ(name(parts.back().kind), "trusted key");
    EXPECT_EQ(parts.back().fingerprint, two);
}

TEST_F(trusted_key_files, a_folder_has_one_kind_of_trust) {
    const std::string node = self_signed("node"), certified = here.add("certified");
    const std::string key = to_text(key_of(node)), either = "either authorities or keys";
    expect_refused(errc::in_use, either, certified, [&] { (void)trust_authority(certified, key); });
    expect_refused(errc::in_use, either, certified, [&] {
        make_key(certified, {.name = "certified", .self_signed = true, .overwrite = true});
    });
    for (const bool authority : {false, true})
        expect_refused(errc::in_use, either, node, [&] {
            make_key(node, {.name = "node", .authority = authority, .overwrite = true});
        });
    expect_refused(errc::invalid, either, node, [&] { (void)trust_authority(node, here.lab); });
    make_key(here.with("asks"), {.name = "asks"});
    expect_refused(errc::in_use, either, node, [&] {
        (void)sign_key(here.with("asks"), here.lab, {.output = node, .overwrite = true});
    });
    make_key(here.with("shared"), {.name = "shared", .shared = true});
    expect_refused(errc::in_use, "one kind of credentials", here.with("shared"),
                   [&] { (void)trust_authority(here.with("shared"), key); });
    expect_refused(errc::in_use, "one kind of credentials", node,
                   [&] { make_key(node, {.name = "node", .shared = true}); });
    expect_refused(errc::invalid, "is an authority, which trusts nobody", here.lab,
                   [&] { (void)trust_authority(here.lab, key); });
    expect_refused(errc::not_found, "there is no certificate in", here.with("asks"),
                   [&] { (void)trust_authority(here.with("asks"), key); });
    for (const key_request& each : {key_request{.name = "x", .groups = {"a"}, .self_signed = true},
                                    {.name = "x", .authority = true, .self_signed = true},
                                    {.name = "x", .self_signed = true, .shared = true},
                                    {.name = "x", .trusted = {key_of(node)}}})
        expect_refused(errc::invalid, "a self-signed key is trusted for its fingerprint", node,
                       [&] { make_key(here.with("x"), each); });
    EXPECT_FALSE(files::exists(here.with("x")));
}

TEST_F(trusted_key_files, a_new_key_trusts_whom_the_old_one_trusted) {
    const key_fingerprint one = key_of(self_signed("one")), two = key_of(self_signed("two"));
    const std::string node = self_signed("node", {one});
    const key_fingerprint before = key_of(node);
    make_key(node, {.name = "node", .self_signed = true, .trusted = {two, one}, .overwrite = true});
    EXPECT_NE(key_of(node), before);
    EXPECT_EQ(detail::trusted_keys_in(text_of(node), "list").value(),
              (std::vector<key_fingerprint>{one, two}));
    EXPECT_TRUE(credentials::try_from_folder(node));
}

TEST_F(trusted_key_files, a_list_that_is_full_damaged_or_everybodys_takes_no_more) {
    const std::string node = self_signed("node"), key = to_text(key_of(self_signed("one")));
    std::string full;
    for (std::size_t i = 0; i < detail::most_trusted_keys; ++i) {
        key_fingerprint each;
        each.bytes = {1, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)};
        full = detail::with_trusted_key(std::move(full), each);
    }
    std::ofstream(node + "/trusted.keys") << full;
    expect_refused(errc::invalid, "takes no more", node, [&] { (void)trust_authority(node, key); });
    const std::string own = content(node + "/key.pem");
    std::ofstream(node + "/trusted.keys") << "node7\n";
    expect_refused(errc::invalid, "line 1 of \"" + node + "/trusted.keys\"", node,
                   [&] { (void)trust_authority(node, key); });
    expect_refused(errc::invalid, "line 1 of", node, [&] { (void)revoke_key(key, node); });
    expect_refused(errc::invalid, "line 1 of", node, [&] { (void)describe_key(node); });
    expect_refused(errc::invalid, "line 1 of", node, [&] {
        make_key(node, {.name = "node", .self_signed = true, .overwrite = true});
    });
    EXPECT_EQ(content(node + "/key.pem"), own) << "a key is not replaced for less trust";
    std::ofstream(node + "/trusted.keys") << "";
    ::chmod((node + "/trusted.keys").c_str(), 0666);
    expect_refused(errc::denied, "can be written by everybody", node,
                   [&] { (void)trust_authority(node, key); });
}

}  // namespace
}  // namespace amalgam
