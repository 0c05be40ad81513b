#pragma once

#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <amalgam/core/uri.hpp>

namespace amalgam::tool {

/// Adds --credentials: what this end proves itself by to engines at tcp+tls:// and its kind.
inline void add_credentials(CLI::App& command, std::string& folder) {
    command.add_option("--credentials", folder,
                       "For tcp+tls://, ofi+tcp+tls:// and so on: the name or folder of a key that "
                       "`amalgam key` made; or "
                       "?credentials= in the URI");
}

/// `address` with the option `credentials` that its transport needs.
/// Failure: a command line error, if there is none, or one too many.
inline std::string with_credentials(const std::string& argument, const std::string& address,
                                    const std::string& folder) {
    const uri parsed = uri::parse(address);
    if (!is_encrypted(parsed)) return address;
    if (const auto own = parsed.option("credentials")) {
        if (folder.empty() || folder == *own) return address;
        throw CLI::ValidationError(
            argument, fmt::format("{} names the credentials {}, and --credentials {}, expected one "
                                  "of them",
                                  address, *own, folder));
    }
    if (folder.empty())
        throw CLI::ValidationError(
            argument,
            fmt::format("{} is for those who prove who they are, expected --credentials with the "
                        "name or folder of a key; example: {}{}credentials=node8",
                        address, address, parsed.options.empty() ? '?' : '&'));
    const result<uri> whole = parse_uri(
        fmt::format("{}{}credentials={}", address, parsed.options.empty() ? '?' : '&', folder));
    if (!whole || whole->option("credentials") != folder)
        throw CLI::ValidationError(
            "--credentials",
            fmt::format("\"{}\" has something that a URI cannot, expected a name or path without "
                        "blanks, & and the like; example: ln -s '{}' node8, and --credentials "
                        "./node8",
                        folder, folder));
    return to_string(*whole);
}

}  // namespace amalgam::tool
