#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include <amalgam/fabric/key_folder.hpp>

#include "commands.hpp"
#include "json_output.hpp"

namespace amalgam::tool {
namespace {

struct new_options {
    std::string folder;
    key_request what;
    std::optional<unsigned> days;
    std::string with;
    std::vector<std::string> trusted;
    bool p256 = false;
};

/// What a path or name ends in.
std::string last_part(const std::string& folder) {
    return folder.substr(folder.rfind('/') + 1);
}

bool is_same_folder(const std::string& one, const std::string& other) {
    std::error_code absent;
    return std::filesystem::equivalent(one, other, absent);
}

void tell_self_signed(const key_request& what, const std::string& folder, const std::string& as) {
    const std::string own = to_text(*read_key_parts(folder + "/key.pem").front().fingerprint);
    fmt::print("made the self-signed key {} in {}\nfingerprint: {}\n", what.name, folder, own);
    if (what.trusted.empty())
        fmt::print(
            "next: at the other end, amalgam key new NAME --trust {}\nthen here: amalgam key trust "
            "{} FINGERPRINT\n",
            own, as);
    else
        fmt::print("next: at the other end, amalgam key trust NAME {}\n", own);
}

void new_key(const new_options& options) {
    key_request what = options.what;
    const std::string folder = of_argument("name", [&] { return key_folder(options.folder); });
    what.name = last_part(folder);
    if (options.p256) what.algorithm = key_algorithm::p256;
    for (const std::string& each : options.trusted)
        what.trusted.push_back(of_argument("trust", [&] { return parse_key_fingerprint(each); }));
    what.self_signed = what.self_signed || !what.trusted.empty();
    if ((what.authority || what.self_signed) && options.days) what.days = *options.days;
    // Before there is a key that it will not sign.
    if (!options.with.empty()) require_authority(options.with, options.days);
    if (!options.with.empty() && is_same_folder(key_folder(options.with), folder))
        throw error(errc::invalid,
                    fmt::format("{} is the authority itself, which would be replaced; expected "
                                "another name for the new key",
                                options.folder));
    of_argument("name", [&] { return make_key(folder, what), true; });
    if (what.shared) {
        fmt::print(
            "made the pre-shared key {} in {}\nnext: copy the folder to the other end, in a safe "
            "way, and use tcp+tls://HOST:PORT?credentials={} at both\n",
            what.name, folder, options.folder);
        return;
    }
    if (what.authority) {
        fmt::print(
            "made the authority {} in {}\nnext: amalgam key new NAME --host HOST --with {}\n",
            what.name, folder, options.folder);
        return;
    }
    if (what.self_signed) return tell_self_signed(what, folder, options.folder);
    fmt::print("made the key {} in {}\n", what.name, folder);
    if (options.with.empty()) {
        fmt::print("next: amalgam key sign {} --with AUTHORITY\n", options.folder);
        return;
    }
    fmt::print("{}\nnext: tcp+tls://HOST:PORT?credentials={}\n",
               sign_key(folder, options.with, {.days = options.days, .overwrite = what.overwrite}),
               options.folder);
}

CLI::Option* add_days(CLI::App& to, std::optional<unsigned>& days, const char* what) {
    return to.add_option("--days", days, what)->check(CLI::Range(1, 36500));
}

void add_new(CLI::App& key) {
    auto options = std::make_shared<new_options>();
    auto* command = key.add_subcommand("new", "Make a key, or an authority that certifies keys");
    command->footer("example: amalgam key new node7 --host node7.lab --host 10.0.0.7 --with lab");
    command
        ->add_option("name", options->folder,
                     "Name of its owner, and of its folder in ~/.config/amalgam/keys; with a \"/\" "
                     "the path of the folder")
        ->required();
    auto* hosts =
        command->add_option("--host", options->what.hosts,
                            "Name or IP address under which others connect to it; may be repeated");
    auto* groups = command->add_option("--group", options->what.groups,
                                       "A group that it is a member of; may be repeated");
    auto* authority = command->add_flag("--authority", options->what.authority,
                                        "An authority: it certifies others");
    auto* with = command
                     ->add_option("--with", options->with,
                                  "Certify it at once by this authority: a name or a folder")
                     ->excludes(authority);
    auto* days = add_days(*command, options->days,
                          "How long the certificate is valid; default: 365 by an authority, "
                          "else 3650");
    auto* p256 = command->add_flag("--p256", options->p256, "ECDSA over P-256 in place of Ed25519");
    auto* self_signed =
        command
            ->add_flag("--self-signed", options->what.self_signed,
                       "Without an authority: the other end trusts it by its fingerprint")
            ->excludes(authority)
            ->excludes(with)
            ->excludes(groups);
    auto* trusted = command
                        ->add_option("--trust", options->trusted,
                                     "Fingerprint of a key that it trusts, which makes it "
                                     "self-signed; may be repeated")
                        ->excludes(authority)
                        ->excludes(with)
                        ->excludes(groups);
    command
        ->add_flag("--shared", options->what.shared,
                   "A pre-shared key, which both ends have, in place of a private one with a "
                   "certificate")
        ->excludes(authority)
        ->excludes(with)
        ->excludes(days)
        ->excludes(p256)
        ->excludes(hosts)
        ->excludes(groups)
        ->excludes(self_signed)
        ->excludes(trusted);
    command->add_flag("--force", options->what.overwrite, "Replace a key that is there");
    command->callback([options, authority, with, self_signed, trusted] {
        if (options->days && authority->empty() && with->empty() && self_signed->empty() &&
            trusted->empty())
            throw CLI::ValidationError("--days",
                                       "a key without a certificate has no end; expected --with "
                                       "or --authority, or --self-signed");
        new_key(*options);
    });
}

struct sign_options {
    std::string request, with;
    signing_options how;
    std::vector<std::string> hosts, groups;
};

void add_sign(CLI::App& key) {
    auto options = std::make_shared<sign_options>();
    auto* command = key.add_subcommand("sign", "Certify a key that was made here or elsewhere");
    command->footer("example: amalgam key sign request.pem --with lab");
    command
        ->add_option("request", options->request,
                     "The request.pem of the key, or its folder. Check what it asks for by "
                     "`amalgam key show`")
        ->required();
    command->add_option("--with", options->with, "The authority: a name or a folder")->required();
    auto* hosts = command->add_option("--host", options->hosts,
                                      "Certify these hosts, not those that are asked for");
    auto* groups = command->add_option("--group", options->groups,
                                       "Certify these groups, not those that are asked for");
    auto none = std::make_shared<bool>(false);
    command->add_flag("--no-groups", *none, "Certify no group")->excludes(groups);
    add_days(*command, options->how.days, "How long the certificate is valid; default: 365");
    command->add_option("-o,--output", options->how.output,
                        "Folder for the certificate; default: the one of the request");
    command->add_flag("--force", options->how.overwrite, "Replace a certificate that is there");
    command->callback([options, hosts, groups, none] {
        if (!hosts->empty()) options->how.hosts = options->hosts;
        if (!groups->empty() || *none) options->how.groups = options->groups;
        fmt::print("{}\n", sign_key(options->request, options->with, options->how));
    });
}

void add_trust(CLI::App& key) {
    auto folder = std::make_shared<std::string>(), authority = std::make_shared<std::string>();
    auto* command = key.add_subcommand(
        "trust",
        "Let a key trust who an authority certified, or another key, or accept a pre-shared key");
    command->footer("example: amalgam key trust node7 lab/certificate.pem");
    command->add_option("folder", *folder, "Folder or name of the key")->required();
    command
        ->add_option("authority", *authority,
                     "certificate.pem or revoked.pem of the authority, or its folder for both; the "
                     "fingerprint of a key, if the other is self-signed; the folder of a "
                     "pre-shared key, if that of the key has such, too")
        ->required();
    command->callback(
        [folder, authority] { fmt::print("{}\n", trust_authority(*folder, *authority)); });
}

void add_revoke(CLI::App& key) {
    auto what = std::make_shared<std::string>(), with = std::make_shared<std::string>();
    auto* command = key.add_subcommand("revoke",
                                       "Add a certificate to a revocation list, or trust a key, "
                                       "or accept a pre-shared key, no longer");
    command->footer("example: amalgam key revoke node7 --with lab");
    command
        ->add_option("certificate", *what,
                     "Certificate, folder or name of the key, or the certificate's serial number; "
                     "the fingerprint of a trusted key; the name of a pre-shared key")
        ->required();
    command
        ->add_option("--with", *with,
                     "The authority that certified it; the folder that trusts the key, or accepts "
                     "the pre-shared key")
        ->required();
    command->callback([what, with] { fmt::print("{}\n", revoke_key(*what, *with)); });
}

json_object as_json(const key_part& part) {
    using enum key_part_kind;
    const auto any_of = [&](auto... kinds) { return ((part.kind == kinds) || ...); };
    json_object all{{"file", part.file}, {"kind", name(part.kind)}};
    if (any_of(certificate, authority, request, pre_shared_key))
        all["name"] = part.refusal.empty() ? json_object(part.name) : json_object(nullptr);
    if (!part.refusal.empty()) all["refusal"] = part.refusal;
    if (any_of(certificate, request)) {
        all["hosts"] = part.hosts;
        all["groups"] = part.groups;
    }
    if (any_of(certificate, authority, revocation_list)) {
        all["issuer"] = part.issuer;
        all["not_before"] = utc(*part.not_before);
        all["not_after"] =
            part.not_after ? json_object(utc(*part.not_after)) : json_object(nullptr);
    }
    if (any_of(certificate, authority)) {
        all["valid_now"] = part.valid_now;
        all["serial"] = part.serial;
    }
    if (part.fingerprint && part.kind != trusted_key) all["algorithm"] = part.algorithm;
    if (!any_of(revocation_list, trusted_key)) all["key_bits"] = part.key_bits;
    if (part.fingerprint) all["fingerprint"] = to_text(*part.fingerprint);
    if (part.kind == revocation_list) {
        all["revoked"] = json_object::array();
        for (const revoked_certificate& each : part.revoked)
            all["revoked"].push_back({{"serial", each.serial}, {"when", utc(each.when)}});
    }
    if (part.kind == pre_shared_key) all["own"] = part.own;
    return all;
}

void add_show(CLI::App& key) {
    auto path = std::make_shared<std::string>();
    auto json = std::make_shared<bool>(false);
    auto* show = key.add_subcommand("show", "Show what the files of a key say");
    show->footer("example: amalgam key show node7");
    show->add_option("file", *path,
                     "A file in PEM, of trusted or of pre-shared keys, or folder or name of a key")
        ->required();
    add_json(*show, *json, "key, certificate, request and revocation list");
    show->callback([path, json] {
        if (!*json) return fmt::print("{}", describe_key(*path));
        for (const key_part& each : read_key_parts(*path))
            print_json(as_json(each));
    });
}

}  // namespace

void add_key(CLI::App& app) {
    auto* key = app.add_subcommand("key", "Keys and certificates for tcp+tls://");
    key->require_subcommand(1);
    add_new(*key);
    add_sign(*key);
    add_trust(*key);
    add_revoke(*key);
    add_show(*key);
}

}  // namespace amalgam::tool
