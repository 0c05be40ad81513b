#include "fabric/trust/key_folders/shared_key_files.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/status.hpp>

#include "fabric/trust/key_folders/key_files.hpp"
#include "fabric/trust/keys/new_file.hpp"
#include "fabric/trust/keys/pre_shared_keys.hpp"
#include "fabric/trust/keys/trusted_keys.hpp"

namespace amalgam::detail {
namespace {

std::string path_in(const std::string& folder) {
    return folder + "/" + pre_shared_file;
}

/// The text and what it says. Failure: as pre_shared_keys::in_file().
struct shared_file {
    explicit shared_file(const std::string& path)
        : text(read_secret_file(path, kind_of_pre_shared_file).value()),
          keys(pre_shared_keys::in(text.text(), fmt::format("\"{}\"", path)).value()) {}

    secret_text text;
    pre_shared_keys keys;
};

void write_keys(const std::string& path, const secret_text& text) {
    write_file(path, text.text(), 0600, true);
}

}  // namespace

bool has_shared_keys(const std::string& folder) {
    return is_there(path_in(folder));
}

void refuse_beside_shared_keys(const std::string& in) {
    if (!is_there(in + pre_shared_file)) return;
    throw error(
        errc::in_use,
        fmt::format("\"{}{}\" exists already, expected a folder without pre-shared keys, as "
                    "an endpoint has one kind of credentials; give the key another name",
                    in, pre_shared_file));
}

void make_shared_key(const std::string& folder, const key_request& what) {
    if (!what.hosts.empty() || !what.groups.empty() || what.authority)
        throw error(errc::invalid,
                    "a pre-shared key has a name only, expected no host and no group, and no "
                    "authority; example: amalgam key new node7 --shared");
    const std::string in = key_folder(folder);
    make_folder(in);
    const unique_fd locked = lock_folder(in);
    for (const char* each : {"key.pem", "certificate.pem", "request.pem", trusted_file})
        if (is_there(in + "/" + each))
            throw error(errc::in_use,
                        fmt::format("\"{}/{}\" exists already, expected a folder without other "
                                    "keys, as an endpoint has one kind of credentials; give the "
                                    "key another name",
                                    in, each));
    const std::string path = path_in(in);
    const secret_text fresh = new_pre_shared_key(what.name);
    if (!is_there(path) || !what.overwrite) return write_file(path, fresh.text(), 0600, false);
    const shared_file before(path);
    const pre_shared_keys::key* const same = before.keys.find(what.name);
    if (same != nullptr && same != &before.keys.own())
        throw error(errc::in_use, fmt::format("\"{}\" accepts another key by the name of {}, "
                                              "expected a new name; example: amalgam key revoke {} "
                                              "--with {}",
                                              path, what.name, what.name, in));
    write_keys(path, with_own(before.text.text(), fresh.text()));
}

std::string accept_shared_key(const std::string& in, const std::string& file_or_folder) {
    const shared_file other(key_file(file_or_folder, pre_shared_file));
    const unique_fd locked = lock_folder(in);
    const std::string path = path_in(in);
    const shared_file mine(path);
    const pre_shared_keys::key& added = other.keys.own();
    if (const pre_shared_keys::key* const same = mine.keys.find(added.name)) {
        if (std::ranges::equal(same->secret, added.secret))
            return fmt::format("{} accepts the pre-shared key {} already", in, added.name);
        throw error(errc::in_use,
                    fmt::format("\"{}\" has another key by the name of {}, which is not replaced; "
                                "example: amalgam key revoke {} --with {}",
                                path, added.name, added.name, in));
    }
    if (mine.keys.all().size() == pre_shared_keys::most_keys)
        throw error(errc::invalid,
                    fmt::format("\"{}\" has {} keys, and takes no more; certificates have no such "
                                "end; example: amalgam key new lab --authority",
                                path, pre_shared_keys::most_keys));
    write_keys(path, with_line(mine.text.text(), own_line(other.text.text())));
    return fmt::format("{} accepts the pre-shared key {}", in, added.name);
}

std::string remove_shared_key(const std::string& in, const std::string& name_or_folder) {
    const unique_fd locked = lock_folder(in);
    const std::string path = path_in(in);
    const shared_file mine(path);
    const bool is_path =
        name_or_folder.find('/') != name_or_folder.npos || names_a_file(name_or_folder);
    const std::string name =
        is_path ? shared_file(key_file(name_or_folder, pre_shared_file)).keys.own().name
                : name_or_folder;
    const pre_shared_keys::key* const found = mine.keys.find(name);
    if (found == nullptr)
        throw error(errc::not_found,
                    fmt::format("\"{}\" has no key by the name of \"{}\"; `amalgam key show {}` "
                                "lists them",
                                path, printable_name(name.substr(0, 80)), in));
    if (found == &mine.keys.own())
        throw error(errc::invalid,
                    fmt::format("{} is the own key in \"{}\", which cannot be without one; a new "
                                "one: amalgam key new {} --shared --force",
                                name, path, in));
    write_keys(path, without_line(mine.text.text(), name));
    return fmt::format("{} no longer accepts the pre-shared key {}; it is in force within a second",
                       in, name);
}

}  // namespace amalgam::detail
