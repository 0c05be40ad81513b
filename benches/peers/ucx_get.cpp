// UCX one-sided reads of a peer that polls, one or several in flight. The transport is UCX's own
// choice among those named in UCX_TLS, which the caller sets ("posix,cma", "tcp").
//   ucx_get own|block SIZE DEPTH SECONDS    own: memory from the heap; block: memory that UCX maps
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <ucp/api/ucp.h>

#include <amalgam/core/status.hpp>

#include "perf/measurement.hpp"
#include "perf/pair.hpp"

namespace {

using namespace amalgam;

void check(ucs_status_t status, const char* what) {
    if (status != UCS_OK)
        throw error(errc::internal, fmt::format("{}: {}", what, ucs_status_string(status)));
}

std::string to_hex(const void* from, std::size_t bytes) {
    std::string hex;
    for (std::size_t i = 0; i < bytes; ++i)
        hex += fmt::format("{:02x}", static_cast<const unsigned char*>(from)[i]);
    return hex;
}

std::vector<char> from_hex(const std::string& hex) {
    std::vector<char> bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return bytes;
}

/// A context and a worker; they end with the process.
struct worker {
    ucp_context_h context = nullptr;
    ucp_worker_h self = nullptr;

    worker() {
        ucp_config_t* config = nullptr;
        check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_RMA;
        check(ucp_init(&params, config, &context), "ucp_init");
        ucp_config_release(config);
        ucp_worker_params_t how{};
        how.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        how.thread_mode = UCS_THREAD_MODE_SINGLE;
        check(ucp_worker_create(context, &how, &self), "ucp_worker_create");
    }

    std::string address() {
        ucp_address_t* at = nullptr;
        std::size_t bytes = 0;
        check(ucp_worker_get_address(self, &at, &bytes), "ucp_worker_get_address");
        std::string hex = to_hex(at, bytes);
        ucp_worker_release_address(self, at);
        return hex;
    }

    ucp_ep_h connect(const std::string& hex) {
        const std::vector<char> bytes = from_hex(hex);
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = reinterpret_cast<const ucp_address_t*>(bytes.data());
        ucp_ep_h endpoint = nullptr;
        check(ucp_ep_create(self, &params, &endpoint), "ucp_ep_create");
        return endpoint;
    }

    /// Memory that is registered: the caller's, or where `own` is null UCX's.
    ucp_mem_h map(void* own, std::size_t bytes, void*& at) {
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                            UCP_MEM_MAP_PARAM_FIELD_FLAGS;
        params.address = own;
        params.length = bytes;
        params.flags = own == nullptr ? UCP_MEM_MAP_ALLOCATE : 0;
        ucp_mem_h handle = nullptr;
        check(ucp_mem_map(context, &params, &handle), "ucp_mem_map");
        ucp_mem_attr_t facts{};
        facts.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
        check(ucp_mem_query(handle, &facts), "ucp_mem_query");
        at = facts.address;
        std::memset(at, 0x5a, bytes);
        return handle;
    }
};

void serve(perf::channel& talk, bool own, std::size_t size) {
    worker me;
    std::vector<char> memory(own ? size : 0);
    void* at = nullptr;
    ucp_mem_h handle = me.map(own ? memory.data() : nullptr, size, at);
    void* key = nullptr;
    std::size_t key_bytes = 0;
    check(ucp_rkey_pack(me.context, handle, &key, &key_bytes), "ucp_rkey_pack");
    talk.write_line(me.address());
    talk.write_line(std::to_string(reinterpret_cast<std::uint64_t>(at)));
    talk.write_line(to_hex(key, key_bytes));
    for (unsigned idle = 0;;)
        if (ucp_worker_progress(me.self) == 0 && ++idle % (1u << 16) == 0 && talk.closed()) return;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view kind = argc == 5 ? argv[1] : "";
    if (kind != "own" && kind != "block") {
        std::fprintf(stderr, "usage: UCX_TLS=posix,cma %s own|block SIZE DEPTH SECONDS\n", argv[0]);
        return 2;
    }
    const bool own = kind == "own";
    const auto size = static_cast<std::size_t>(std::atoll(argv[2]));
    const auto depth = static_cast<std::size_t>(std::atoll(argv[3]));
    perf::forked_peer peer([&](perf::channel& talk) { serve(talk, own, size); });
    worker me;
    ucp_ep_h target = me.connect(peer.talk().read_line());
    const std::uint64_t address = std::stoull(peer.talk().read_line());
    const std::vector<char> packed = from_hex(peer.talk().read_line());
    ucp_rkey_h key = nullptr;
    check(ucp_ep_rkey_unpack(target, packed.data(), &key), "ucp_ep_rkey_unpack");

    std::vector<std::vector<char>> memories(own ? depth : 0, std::vector<char>(size));
    std::vector<void*> into;
    for (std::size_t i = 0; i < depth; ++i) {
        void* at = own ? memories[i].data() : nullptr;
        if (!own) me.map(nullptr, size, at);
        into.push_back(at);
    }
    std::vector<void*> open(depth, nullptr);
    const auto finish = [&](void*& request) {
        if (request == nullptr) return;
        if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), "ucp_get_nbx");
        while (ucp_request_check_status(request) == UCS_INPROGRESS)
            ucp_worker_progress(me.self);
        ucp_request_free(request);
        request = nullptr;
    };
    std::size_t next = 0;
    auto m = perf::measure_round_trips(std::atof(argv[4]), [&] {
        finish(open[next]);
        const ucp_request_param_t how{};
        open[next] = ucp_get_nbx(target, into[next], size, address, key, &how);
        next = (next + 1) % depth;
    });
    for (void*& request : open)
        finish(request);
    m.test = "get-bandwidth";
    m.uri = "ucx";
    m.size_bytes = size;
    m.depth = depth;
    m.bytes_per_s = m.ops_per_s * static_cast<double>(size);
    std::puts(perf::to_json(m).c_str());
    std::fflush(stdout);
}
