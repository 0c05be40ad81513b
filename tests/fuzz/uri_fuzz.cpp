#include <array>
#include <string>

#include <amalgam/core/uri.hpp>

#include "fuzz/fuzz.hpp"

namespace amalgam::fuzz {

void run_one(const_bytes input) {
    std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
    result<uri> first = parse_uri(text);
    if (!first.ok()) {
        require(first.code() == errc::invalid, "a refused uri is invalid");
        const std::string& sentence = first.sentence();
        std::size_t example = sentence.rfind("; example: ");
        require(example != sentence.npos, "a refusal gives an example");
        require(sentence.size() < 900, "a refusal is one sentence");
        for (char c : sentence)
            require(c >= 0x20 && c < 0x7f, "a refusal is printable");
        require(parse_uri(sentence.substr(example + 11)).ok(), "the example parses");
        return;
    }
    std::string canonical = to_string(*first);
    result<uri> second = parse_uri(canonical);
    require(second.ok(), "the canonical text parses");
    require(*second == *first, "the canonical text means the same");
    require(to_string(*second) == canonical, "the canonical text is canonical");
}

std::span<const std::string_view> seeds() {
    static constexpr std::array<std::string_view, 16> all{
        "loop://server",
        "shm://",
        "na+sm://jobs.7",
        "tcp://",
        "tcp://eth0:7000?insecure=yes",
        "tcp://127.0.0.1:0",
        "tcp://[2001:db8::1]:80",
        "tcp://[fe80::1%eth0]:65535",
        "tcp://node-3.example.org:",
        "ucx+rc://mlx5_0:1/10.0.0.1:7000",
        "ofi+verbs;ofi_rxm://mlx5_0/[::1]:7000",
        "mpi+dynamic",
        "mpi+static://1:2",
        "unix:///run/job.sock",
        "rdma+ib://[a]:b:c",
        "tcp://h:1?nodelay=no&path=/a=b",
    };
    return all;
}

}  // namespace amalgam::fuzz
