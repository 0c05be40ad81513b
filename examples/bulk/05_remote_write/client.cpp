#include "client.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <stdexcept>
#include <vector>

#include <amalgam/bulk.hpp>
#include <amalgam/core.hpp>

#include "local_file.hpp"

namespace remote_write {
namespace {

/// Size of a client's two buffers for a file being sent. If somebody truncates the file, reading
/// fails; with a mapped file it would be SIGBUS on transports that copy it themselves.
constexpr std::uint64_t client_chunk_bytes = 8 * chunk_bytes;

/// Memory for one chunk, in several separate pieces.
class chunk_memory {
public:
    chunk_memory(std::uint64_t bytes, unsigned pieces)
        : each_(static_cast<std::size_t>((bytes + pieces - 1) / std::max(pieces, 1u))),
          all_((each_ + gap) * std::max(pieces, 1u)) {}

    /// The first `bytes` of it.
    std::vector<am::mutable_bytes> first(std::uint64_t bytes) {
        std::vector<am::mutable_bytes> list;
        for (std::byte* at = all_.data(); bytes > 0; at += each_ + gap) {
            list.emplace_back(at, static_cast<std::size_t>(std::min<std::uint64_t>(each_, bytes)));
            bytes -= list.back().size();
        }
        return list;
    }

private:
    static constexpr std::size_t gap = 64;

    std::size_t each_;
    std::vector<std::byte> all_;
};

class stopwatch {
public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    }

private:
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

void check_all(std::uint64_t moved, std::uint64_t bytes, const std::string& name) {
    if (moved != bytes)
        throw std::runtime_error(std::to_string(moved) + " bytes of \"" + name +
                                 "\" were moved, expected " + std::to_string(bytes));
}

}  // namespace

double transfer::mib_per_second() const noexcept {
    return seconds > 0 ? static_cast<double>(bytes) / seconds / (1 << 20) : 0;
}

client::client(const std::string& address)
    : engine_(am::client_uri(am::uri::parse(address)), {.name = "client"}),
      server_(engine_.lookup(address)) {}

transfer client::put(const std::string& file, const std::string& name, unsigned pieces, bool sync) {
    const local_file local = local_file::open(file, open_mode::read);
    const std::uint64_t bytes = local.bytes();
    const auto open = engine_.procedure<open_signature>(open_name).on(server_);
    const auto write = engine_.procedure<write_signature>(write_name).on(server_);
    const auto close = engine_.procedure<close_signature>(close_name).on(server_);

    const stopwatch watch;
    const opened_file there = open(name, open_mode::replace);
    // One half is filled while the other is in flight.
    std::array<chunk_memory, 2> halves{chunk_memory(std::min(bytes, client_chunk_bytes), pieces),
                                       chunk_memory(std::min(bytes, client_chunk_bytes), pieces)};
    std::uint64_t sending = 0;
    am::exposed shown;
    am::future<std::uint64_t> sent;
    for (std::uint64_t at = 0; at < bytes; at += sending) {
        const std::uint64_t here = std::min(client_chunk_bytes, bytes - at);
        const auto memory = halves[at / client_chunk_bytes % 2].first(here);
        std::uint64_t filled = at;
        for (const am::mutable_bytes piece : memory) {
            local.read(piece, filled);
            filled += piece.size();
        }
        if (at > 0) check_all(sent.get(), sending, name);
        shown = am::expose(engine_, am::const_segments(memory));
        sending = here;
        sent = write.start(there.handle, at, shown);
    }
    if (bytes > 0) check_all(sent.get(), sending, name);
    if (sync) engine_.procedure<sync_signature>(sync_name).on(server_)(there.handle);
    close(there.handle);
    const double took = watch.seconds();
    return {bytes, took, local.sha256()};
}

transfer client::get(const std::string& name, const std::string& file) {
    const auto open = engine_.procedure<open_signature>(open_name).on(server_);
    const auto read = engine_.procedure<read_signature>(read_name).on(server_);
    const auto close = engine_.procedure<close_signature>(close_name).on(server_);

    const stopwatch watch;
    const opened_file there = open(name, open_mode::read);
    const local_file local = local_file::open(file, open_mode::replace);
    std::vector<std::byte> memory(std::min(there.bytes, client_chunk_bytes));
    for (std::uint64_t at = 0; at < there.bytes; at += memory.size()) {
        memory.resize(std::min<std::uint64_t>(memory.size(), there.bytes - at));
        const am::exposed shown = am::expose(engine_, memory, am::access::write);
        check_all(read(there.handle, at, shown), memory.size(), name);
        local.write(memory, at);
    }
    close(there.handle);
    const double took = watch.seconds();
    return {there.bytes, took, local.sha256()};
}

file_info client::stat(const std::string& name) {
    return engine_.procedure<stat_signature>(stat_name).on(server_)(name);
}

}  // namespace remote_write
