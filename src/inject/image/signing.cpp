#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>

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

/// In memory that is locked, as far as the limit allows, in no core dump, and wiped in the end. Not
/// by fabric's reader of secrets, whose memory is OpenSSL's, which code needs not to travel.
/// Failure: throws std::bad_alloc.
template <typename T>
std::shared_ptr<T> make_secret() {
    static_assert(alignof(T) == 1);
    use_sodium();
    void* const memory = ::sodium_malloc(sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    return {new (memory) T{}, [](T* one) { ::sodium_free(one); }};
}

/// A file with a key, and one byte more.
using key_text = std::array<char, detail::limits::max_key_file_bytes + 1>;

error unreadable(const std::string& path) {
    return {errc::not_found,
            fmt::format("the key {} cannot be read ({})", path, std::strerror(errno))};
}

/// All of a file, into `text`, without the end of its line.
std::string_view read_line(int file, const std::string& path, key_text& text) {
    const auto size = detail::read_into(file, std::as_writable_bytes(std::span(text)));
    if (!size) throw unreadable(path);
    if (*size == text.size())
        throw error(errc::invalid, fmt::format("the key {} is longer than {} bytes", path,
                                               detail::limits::max_key_file_bytes));
    const std::string_view all(text.data(), *size);
    return all.substr(0, all.find_last_not_of("\r\n") + 1);
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
    auto made = make_secret<secret>();
    signer_key open{};
    ::crypto_sign_keypair(open.data(), made->data());
    return signing_key(std::move(made));
}

signing_key signing_key::load(const std::string& path) {
    const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat about {};
    if (!file || ::fstat(file.get(), &about) != 0) throw unreadable(path);
    const auto text = make_secret<key_text>();
    const std::string_view digits = read_line(file.get(), path, *text);
    auto made = make_secret<secret>();
    if (!detail::parse_digits(digits, *made))
        throw error(errc::invalid,
                    fmt::format("{} is not a signing key; amalgam inject key makes one", path));
    if (S_ISREG(about.st_mode) && (about.st_mode & 077) != 0)
        throw error(errc::denied,
                    fmt::format("the key {} is open to others (mode {:04o}), expected a file that "
                                "only its owner can read; example: chmod 600 {}",
                                path, about.st_mode & 07777, path));
    return signing_key(std::move(made));
}

void signing_key::save(const std::string& path) const {
    const auto text = make_secret<key_text>();
    ::sodium_bin2hex(text->data(), text->size(), secret_->data(), secret_->size());
    const std::size_t bytes = 2 * secret_->size() + 1;
    text->at(bytes - 1) = '\n';
    const unique_fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    const ssize_t put = file ? ::write(file.get(), text->data(), bytes) : -1;
    const bool whole = put == static_cast<ssize_t>(bytes);
    // A short write says nothing in errno; it is the disk that is full.
    const int why = put >= 0 && !whole ? ENOSPC : errno;
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
    ::crypto_sign_ed25519_sk_to_pk(open.data(), secret_->data());
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
                           data_of(text), text.size(), key.secret_->data());
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
