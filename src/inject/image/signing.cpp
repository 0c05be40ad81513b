#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/detail/read_file.hpp>
#include <amalgam/core/detail/text.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/inject/code_image.hpp>
#include <amalgam/rpc/archive.hpp>

#include "inject/image/contents.hpp"
#include "inject/image/text.hpp"
#include "inject/limits.hpp"

namespace amalgam {

namespace {

static_assert(std::tuple_size_v<signer_key> == crypto_sign_PUBLICKEYBYTES);

void use_sodium() {
    if (::sodium_init() < 0) throw error(errc::unsupported, "cannot initialize libsodium");
}

/// The signed text: its purpose, the hash of the image, and all that follows up to the proof.
std::string signed_text(const image_hash& hash, const_bytes said) {
    std::string text = "amalgam image manifest ";
    text.append(hash.begin(), hash.end());
    return text.append(reinterpret_cast<const char*>(said.data()), said.size());
}

const std::uint8_t* data_of(const std::string& text) noexcept {
    return reinterpret_cast<const std::uint8_t*>(text.data());
}

}  // namespace

std::string to_text(const signer_key& key) {
    return detail::to_hex(std::as_bytes(std::span(key)));
}

signer_key parse_signer_key(std::string_view text) {
    signer_key key{};
    if (!detail::parse_digits(text, key))
        throw error(errc::invalid,
                    fmt::format("\"{}\" is not a signer's key, expected 64 hexadecimal digits, as "
                                "amalgam inject key prints them",
                                text));
    return key;
}

signing_key signing_key::generate() {
    use_sodium();
    signing_key key;
    signer_key open{};
    ::crypto_sign_keypair(open.data(), key.secret_.data());
    return key;
}

signing_key signing_key::load(const std::string& path) {
    auto read = detail::read_file(path, detail::limits::max_key_file_bytes);
    if (!read) throw error(read.code(), fmt::format("the key {} {}", path, read.sentence()));
    std::string_view text(reinterpret_cast<const char*>(read->data()), read->size());
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r'))
        text.remove_suffix(1);
    signing_key key;
    const bool good = detail::parse_digits(text, key.secret_);
    ::sodium_memzero(read->data(), read->size());
    if (!good)
        throw error(errc::invalid,
                    fmt::format("{} is not a signing key; amalgam inject key makes one", path));
    struct stat about {};
    if (::stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode) && (about.st_mode & 077) != 0)
        throw error(errc::denied,
                    fmt::format("the key {} is open to others (mode {:04o}), expected a file that "
                                "only its owner can read; example: chmod 600 {}",
                                path, about.st_mode & 07777, path));
    return key;
}

signing_key::~signing_key() {
    ::sodium_memzero(secret_.data(), secret_.size());
}

void signing_key::save(const std::string& path) const {
    const unique_fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    std::string text = detail::to_hex(std::as_bytes(std::span(secret_))) + "\n";
    const ssize_t put = file ? ::write(file.get(), text.data(), text.size()) : -1;
    const bool whole = put == static_cast<ssize_t>(text.size());
    // A short write says nothing in errno; it is the disk that is full.
    const int why = put >= 0 && !whole ? ENOSPC : errno;
    ::sodium_memzero(text.data(), text.size());
    if (whole && ::fsync(file.get()) == 0) return;
    const int failed = whole ? errno : why;
    // Half a key would keep the name, which must be free.
    if (file) ::unlink(path.c_str());
    throw error(errc::denied,
                fmt::format("the key {} cannot be written ({}), expected a name that is free in a "
                            "folder that is there",
                            path, std::strerror(failed)));
}

signer_key signing_key::signer() const noexcept {
    signer_key open{};
    ::crypto_sign_ed25519_sk_to_pk(open.data(), secret_.data());
    return open;
}

code_image code_image::signed_by(const signing_key& key, const image_manifest& manifest) const {
    if (contents_ == nullptr)
        throw error(errc::invalid, "there is no image to sign; load() or find() returns one");
    use_sodium();
    body into;
    archive_writer write(into);
    write.raw(contents_->bytes.data(), contents_->unsigned_bytes);
    write(detail::image_signature::magic, detail::image_signature{manifest, key.signer(), {}});
    std::vector<std::byte> bytes(into.bytes().begin(), into.bytes().end());
    const std::size_t proof_at = bytes.size() - crypto_sign_BYTES;
    const std::string text =
        signed_text(hash(), const_bytes(bytes).first(proof_at).subspan(contents_->unsigned_bytes));
    ::crypto_sign_detached(reinterpret_cast<std::uint8_t*>(bytes.data()) + proof_at, nullptr,
                           data_of(text), text.size(), key.secret_.data());
    auto image = parse(std::move(bytes));
    if (!image) throw error(image.code(), image.sentence());
    return std::move(*image);
}

code_image code_image::signed_by(const signing_key& key) const {
    return signed_by(key, {});
}

bool code_image::verify() const {
    if (contents_ == nullptr || !contents_->signature) return false;
    const detail::image_signature& made = *contents_->signature;
    const const_bytes all = contents_->bytes;
    const std::string text = signed_text(
        hash(), all.first(all.size() - made.proof.size()).subspan(contents_->unsigned_bytes));
    return ::crypto_sign_verify_detached(made.proof.data(), data_of(text), text.size(),
                                         made.by.data()) == 0;
}

const image_manifest* code_image::manifest() const noexcept {
    return contents_ != nullptr && contents_->signature ? &contents_->signature->manifest : nullptr;
}

}  // namespace amalgam
