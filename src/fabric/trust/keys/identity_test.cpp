#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/fabric/identity.hpp>

#include "fabric/trust/keys/certificate.hpp"
#include "fabric/trust/tls/tls_testing.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

TEST(identity, a_fingerprint_is_read_as_it_is_written) {
    key_fingerprint key;
    for (std::size_t i = 0; i < key.bytes.size(); ++i)
        key.bytes[i] = static_cast<std::uint8_t>(7 * i + 3);
    const std::string text = to_text(key);
    EXPECT_EQ(text.size(), 64u);
    EXPECT_EQ(text.substr(0, 6), "030a11");
    EXPECT_EQ(parse_key_fingerprint(text), key);
    EXPECT_EQ(parse_key_fingerprint("030A11" + text.substr(6)), key);
}

TEST(identity, a_fingerprint_may_have_the_colons_and_capitals_that_openssl_prints) {
    key_fingerprint key;
    std::string printed;
    for (std::size_t i = 0; i < key.bytes.size(); ++i) {
        key.bytes[i] = static_cast<std::uint8_t>(200 - 5 * i);
        printed += fmt::format("{}{:02X}", i == 0 ? "" : ":", key.bytes[i]);
    }
    EXPECT_EQ(printed.substr(0, 9), "C8:C3:BE:");
    EXPECT_EQ(parse_key_fingerprint(printed), key);
    std::string dashes = printed;
    dashes[5] = '-';
    for (const std::string& bad : {dashes, printed + ":", ":" + printed, "C8C3" + printed.substr(6),
                                   "C:8" + printed.substr(3)})
        EXPECT_EQ(code_of([&] { (void)parse_key_fingerprint(bad); }), errc::invalid) << bad;
}

TEST(identity, what_is_wrong_with_a_fingerprint_is_told) {
    const auto told = [](const std::string& text) {
        return std::string(error_of([&] { (void)parse_key_fingerprint(text); }).what());
    };
    EXPECT_EQ(told(std::string(63, 'a')), "the key fingerprint \"" + std::string(63, 'a') +
                                              "\" has 63 hexadecimal digits, not 64; `amalgam key "
                                              "show FOLDER` prints one");
    EXPECT_NE(told(std::string(65, 'B')).find("has 65 hexadecimal digits, not 64"),
              std::string::npos);
    EXPECT_NE(told("aa:bb:cc").find("has 6 hexadecimal digits, not 64"), std::string::npos);
    // That of a certificate is the hash of something else, and would never be met.
    EXPECT_NE(told("sha256 Fingerprint=AA:BB")
                  .find("is of a certificate, as `openssl x509` prints "
                        "it, not of its key; `amalgam key show FOLDER`"),
              std::string::npos);
}

TEST(identity, what_is_no_fingerprint_is_refused_with_a_sentence) {
    const std::string good(64, 'a');
    for (const std::string& bad : {std::string(), good.substr(1), good + "a", "g" + good.substr(1),
                                   "\n" + good.substr(1), std::string(5000, '1')}) {
        const error why = error_of([&] { (void)parse_key_fingerprint(bad); });
        EXPECT_EQ(why.code(), errc::invalid);
        EXPECT_NE(std::string(why.what()).find("not 64"), std::string::npos) << why.what();
        EXPECT_EQ(std::string(why.what()).find('\n'), std::string::npos);
        EXPECT_LT(std::string(why.what()).size(), 200u);
    }
}

TEST(identity, nobody_is_certified_by_the_name_of_a_key_that_may_be_trusted_alone) {
    const detail::test_authority lab;
    const std::string digits(64, 'a');
    const auto passes = lab.issue({.name = digits.substr(1)}), poses = lab.issue({.name = digits});
    EXPECT_EQ(detail::identity_of(*passes.made)->name, digits.substr(1));
    const auto who = detail::identity_of(*poses.made);
    EXPECT_EQ(who.code(), errc::denied);
    EXPECT_NE(who.sentence().find("has the fingerprint of a key for its name"), std::string::npos)
        << who.sentence();
}

TEST(identity, is_told_in_one_line) {
    identity who;
    EXPECT_EQ(to_text(who), "nobody known");
    who = {.kind = identity_kind::certificate, .name = "node7", .groups = {"compute", "admin"}};
    EXPECT_EQ(to_text(who), "node7 (groups: compute, admin)");
    who = {.kind = identity_kind::pre_shared, .name = "lab\n"};
    EXPECT_EQ(to_text(who), "lab\\x0a");
    who = {.kind = identity_kind::process, .uid = 1000, .gid = 100, .pid = 4711};
    EXPECT_EQ(to_text(who), "uid 1000 (pid 4711)");
}

TEST(identity, names_that_drive_a_terminal_or_look_like_others_are_denied) {
    const detail::test_authority authority;
    for (const std::string bad : {"node\xc2\x85",
                                  "a\xc2\x9b"
                                  "2J",
                                  "\xe2\x80\xae"
                                  "edon",
                                  "\xe2\x81\xa6x", "\xd8\x9cx", "x\xe2\x80\x8f", "x\xe2\x80\xa8y",
                                  "no\x1b"
                                  "de"}) {
        const detail::test_certificate shown = authority.issue({.name = bad});
        const auto who = detail::identity_of(*shown.made);
        EXPECT_EQ(who.code(), errc::denied) << bad;
        EXPECT_FALSE(detail::has_controls(who.sentence())) << who.sentence();
    }
    for (const std::string good : {"node7",
                                   "n\xc3\xb6"
                                   "de",
                                   "\xe7\xaf\x80", "\xd7\xa2\xd7\xa8"}) {
        const detail::test_certificate shown = authority.issue({.name = good});
        EXPECT_EQ(detail::identity_of(*shown.made).value().name, good);
    }
}

using subject_entries = std::vector<std::pair<int, std::string>>;

/// Of a certificate with that subject.
result<identity> identity_of_subject(const subject_entries& all) {
    const detail::x509_ptr shown(X509_new());
    for (const auto& [kind, text] : all)
        EXPECT_EQ(
            X509_NAME_add_entry_by_NID(X509_get_subject_name(shown.get()), kind, V_ASN1_UTF8STRING,
                                       reinterpret_cast<const unsigned char*>(text.data()),
                                       static_cast<int>(text.size()), -1, 0),
            1);
    const detail::no_errors_left at_the_end;  // It has no key.
    return detail::identity_of(*shown);
}

TEST(identity, one_with_two_names_or_a_name_or_group_that_is_too_long_is_denied) {
    constexpr int name = NID_commonName, group = NID_organizationalUnitName;
    EXPECT_EQ(identity_of_subject({{name, "node7"}, {group, "compute"}}).code(), errc::ok);
    EXPECT_EQ(identity_of_subject({{name, std::string(255, 'n')}}).code(), errc::ok);
    for (const subject_entries& bad :
         {subject_entries{}, subject_entries{{name, "node7"}, {name, "admin"}},
          subject_entries{{name, std::string(256, 'n')}},
          subject_entries{{name, "node7"}, {group, std::string(256, 'g')}},
          subject_entries{{name, "node7"}, {group, "compute"}, {group, "a\nb"}}})
        EXPECT_EQ(identity_of_subject(bad).code(), errc::denied);
    subject_entries many(65, {group, "g"});
    many.front() = {name, "node7"};
    EXPECT_EQ(identity_of_subject(many)->groups.size(), 64u);
    many.emplace_back(group, "g");
    EXPECT_EQ(identity_of_subject(many).code(), errc::denied);
}

TEST(identity, without_a_common_name_it_is_the_first_dns_name_and_no_address) {
    const detail::test_authority authority;
    const auto identity_for = [&](const char* hosts) {
        const detail::no_errors_left at_the_end;
        const auto shown = authority.issue({.name = "", .hosts = hosts});
        return detail::identity_of(*shown.made);
    };
    EXPECT_EQ(identity_for("IP:10.0.0.7,IP:fd00::7,DNS:10.0.0.8,DNS:node7.lab,DNS:other.lab")
                  .value()
                  .name,
              "node7.lab");
    EXPECT_EQ(identity_for("IP:10.0.0.7,IP:fd00::7").code(), errc::denied);
}

}  // namespace
}  // namespace amalgam
