#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include <amalgam/core/status.hpp>
#include <amalgam/fabric/key_folder.hpp>

namespace amalgam::bench {

/// An authority, and the key "bench" for 127.0.0.1, where programs look for keys, until the end.
class bench_keys {
public:
    explicit bench_keys(key_algorithm algorithm = key_algorithm::ed25519)
        : path_((std::filesystem::temp_directory_path() / "amalgam-XXXXXX").string()) {
        if (::mkdtemp(path_.data()) == nullptr)
            throw error(errc::denied, "there can be no temporary folder");
        ::setenv("XDG_CONFIG_HOME", path_.c_str(), 1);
        make_key("lab", {.name = "lab", .algorithm = algorithm, .authority = true});
        make_key("bench", {.name = "bench", .hosts = {"127.0.0.1"}, .algorithm = algorithm});
        sign_key("bench", "lab");
    }
    bench_keys(const bench_keys&) = delete;
    bench_keys& operator=(const bench_keys&) = delete;
    ~bench_keys() {
        std::error_code left;
        std::filesystem::remove_all(path_, left);
    }

private:
    std::string path_;
};

}  // namespace amalgam::bench
