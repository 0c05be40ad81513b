#include "client.hpp"

#include <chrono>
#include <stdexcept>

#include <amalgam/bulk/expose.hpp>
#include <amalgam/core/uri.hpp>

#include "mapped_file.hpp"

namespace remote_write {
namespace {

/// A port that can call there, and need not be found itself.
std::string caller_uri(const std::string& address) {
    const am::uri there = am::uri::parse(address);
    return there.scheme + (there.protocol.empty() ? "" : "+" + there.protocol) + "://";
}

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
        throw std::runtime_error("of \"" + name + "\" " + std::to_string(moved) +
                                 " bytes were moved, expected " + std::to_string(bytes));
}

}  // namespace

double transfer::mib_per_second() const noexcept {
    return seconds > 0 ? static_cast<double>(bytes) / seconds / (1 << 20) : 0;
}

client::client(const std::string& address)
    : engine_(caller_uri(address), {.name = "client"}), server_(engine_.lookup(address)) {}

transfer client::put(const std::string& file, const std::string& name, unsigned pieces, bool sync) {
    const mapped_file local = mapped_file::open(file, pieces);
    const auto open = engine_.procedure<open_signature>(open_name).on(server_);
    const auto write = engine_.procedure<write_signature>(write_name).on(server_);
    const auto close = engine_.procedure<close_signature>(close_name).on(server_);

    const stopwatch watch;
    const opened_file there = open(name, open_mode::replace);
    if (local.bytes() > 0) {
        const am::exposed shown = am::expose(engine_, am::const_segments(local.pieces()));
        check_all(write(there.handle, 0, shown), local.bytes(), name);
    }
    if (sync) engine_.procedure<sync_signature>(sync_name).on(server_)(there.handle);
    close(there.handle);
    const double took = watch.seconds();
    return {local.bytes(), took, local.sha256()};
}

transfer client::get(const std::string& name, const std::string& file) {
    const auto open = engine_.procedure<open_signature>(open_name).on(server_);
    const auto read = engine_.procedure<read_signature>(read_name).on(server_);
    const auto close = engine_.procedure<close_signature>(close_name).on(server_);

    const stopwatch watch;
    const opened_file there = open(name, open_mode::read);
    const mapped_file local = mapped_file::create(file, there.bytes);
    if (there.bytes > 0) {
        const am::exposed shown =
            am::expose(engine_, am::segments(local.pieces()), am::access::write);
        check_all(read(there.handle, 0, shown), there.bytes, name);
    }
    close(there.handle);
    const double took = watch.seconds();
    return {there.bytes, took, local.sha256()};
}

file_info client::stat(const std::string& name) {
    return engine_.procedure<stat_signature>(stat_name).on(server_)(name);
}

}  // namespace remote_write
