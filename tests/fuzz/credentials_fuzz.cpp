#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <openssl/err.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/key_folder.hpp>

#include "fabric/trust/keys/certificate_builder.hpp"
#include "fabric/trust/keys/pem.hpp"
#include "fuzz/fuzz.hpp"

// A folder of credentials as a whole: certificate.pem, key.pem, authority.pem and revoked.pem, in
// the input one after the other, with a NUL between them. They are read as text, and as the files
// of a folder, by those who use them and by those who describe them.
namespace amalgam::fuzz {

namespace {

namespace files = std::filesystem;
using namespace detail;

constexpr std::size_t parts = 4;
constexpr const char* names[parts] = {"certificate.pem", "key.pem", "authority.pem", "revoked.pem"};

std::array<std::string, parts> split(std::string_view text) {
    std::array<std::string, parts> all;
    for (std::string& each : all) {
        const std::size_t end = std::min(text.find('\0'), text.size());
        each = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return all;
}

void check_sentence(std::string_view sentence) {
    require(!sentence.empty() && !has_controls(sentence), "what is refused is told in one line");
}

void check_result(const result<std::shared_ptr<const credentials>>& read) {
    require(ERR_peek_error() == 0, "no error of OpenSSL is left for others to find");
    if (!read) {
        require(read.code() == errc::invalid || read.code() == errc::denied ||
                    read.code() == errc::not_found,
                "what is refused has a code that callers know");
        return check_sentence(read.sentence());
    }
    const identity who = (*read)->self();
    require(!who.name.empty() && !has_controls(to_text(who)), "who is let in has a name");
    require((*read)->expires() > std::chrono::system_clock::now(), "what is taken is valid");
    check_sentence((*read)->explain());
}

/// Of this process; removed when it ends.
class key_files_folder {
public:
    key_files_folder() : path_((files::temp_directory_path() / "amalgam-XXXXXX").string()) {
        require(::mkdtemp(path_.data()) != nullptr, "there can be a folder");
    }
    ~key_files_folder() {
        std::error_code left;
        files::remove_all(path_, left);
    }
    void write(const std::array<std::string, parts>& all) const {
        for (std::size_t i = 0; i < parts; ++i) {
            const std::string path = path_ + "/" + names[i];
            std::ofstream(path, std::ios::binary) << all[i];
            ::chmod(path.c_str(), 0600);
        }
    }
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

void check_folder(const std::array<std::string, parts>& all) {
    static const key_files_folder folder;
    folder.write(all);
    check_result(credentials::try_from_folder(folder.path()));
    try {
        require(!describe_key(folder.path()).empty(), "what is there is described");
        require(ERR_peek_error() == 0, "no error of OpenSSL is left for others to find");
    } catch (const error& why) {
        check_sentence(why.what());
    }
    try {
        require_authority(folder.path());
    } catch (const error& why) {
        check_sentence(why.what());
    }
}

/// The text of a folder of a node, or of the authority itself.
std::string made(bool authority) {
    static const pkey_ptr key = generate_key(key_algorithm::ed25519);
    const auto end = std::chrono::system_clock::now() + std::chrono::hours(24);
    const x509_ptr by = make_authority("lab", *key, end);
    const certified_names seven{"node7", {"node7.lab", "10.0.0.7"}, {"compute"}};
    const x509_ptr node = make_certificate(seven, *key, end, *by, *key);
    std::string all = to_pem(authority ? *by : *node);
    all += '\0';
    all += to_pem(*key).text();
    all += '\0';
    all += to_pem(*by);
    all += '\0';
    all += to_pem(*make_list(nullptr, X509_get0_serialNumber(by.get()), *by, *key));
    return all;
}

}  // namespace

void run_one(const_bytes input) {
    const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
    const auto all = split(text);
    check_result(credentials::try_from_text(
        {.certificate = all[0], .key = all[1], .authority = all[2], .revoked = all[3]}));
    check_folder(all);
}

std::span<const std::string_view> seeds() {
    static const std::string node = made(false), authority = made(true);
    static const std::array<std::string_view, 2> all{node, authority};
    return all;
}

}  // namespace amalgam::fuzz
