// Bare UCX: active messages one round trip at a time, and one-sided transfers to a polling peer,
// one or several in flight. UCX chooses among the transports named by OVER.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <ucp/api/ucp.h>

#include <amalgam/core/status.hpp>

#include "peers/peer.hpp"

namespace {

using namespace amalgam;
using bench::peer_question;

void check(ucs_status_t status, const char* what) {
    if (status != UCS_OK)
        throw error(errc::internal, fmt::format("{}: {}", what, ucs_status_string(status)));
}

/// A context, a worker, and an endpoint to the other process; they end with this one.
class worker {
public:
    explicit worker(const peer_question& asked) {
        ::setenv("UCX_TLS", asked.over == "shm" ? "posix,cma" : "tcp", 0);
        arrived_.resize(asked.size);
        ucp_config_t* config = nullptr;
        check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = asked.messages() ? UCP_FEATURE_AM : UCP_FEATURE_RMA;
        check(ucp_init(&params, config, &context), "ucp_init");
        ucp_config_release(config);
        ucp_worker_params_t how{};
        how.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        how.thread_mode = UCS_THREAD_MODE_SINGLE;
        check(ucp_worker_create(context, &how, &self_), "ucp_worker_create");
        if (!asked.messages()) return;
        ucp_am_handler_param_t handler{};
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                             UCP_AM_HANDLER_PARAM_FIELD_ARG;
        handler.id = 1;
        handler.cb = &worker::on_message;
        handler.arg = this;
        check(ucp_worker_set_am_recv_handler(self_, &handler), "ucp_worker_set_am_recv_handler");
    }

    std::string address() {
        ucp_address_t* at = nullptr;
        std::size_t bytes = 0;
        check(ucp_worker_get_address(self_, &at, &bytes), "ucp_worker_get_address");
        std::string hex = bench::to_hex(at, bytes);
        ucp_worker_release_address(self_, at);
        return hex;
    }

    void connect(const std::string& hex) {
        const std::string bytes = bench::from_hex(hex);
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = reinterpret_cast<const ucp_address_t*>(bytes.data());
        check(ucp_ep_create(self_, &params, &endpoint), "ucp_ep_create");
    }

    /// Registered memory: the program's own, or allocated by UCX if `own` is null.
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

    void* start_send(const std::vector<char>& bytes) {
        const ucp_request_param_t how{};
        return ucp_am_send_nbx(endpoint, 1, nullptr, 0, bytes.data(), bytes.size(), &how);
    }
    void send(const std::vector<char>& bytes) { finish(start_send(bytes)); }

    bool progress() { return ucp_worker_progress(self_) != 0; }
    void finish(void* request) {
        if (request == nullptr) return;
        if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), "a transfer");
        while (ucp_request_check_status(request) == UCS_INPROGRESS)
            progress();
        ucp_request_free(request);
    }

    /// Is over once `put`, and all before it, are at the other end.
    void* start_flush(void* put) {
        if (UCS_PTR_IS_ERR(put)) check(UCS_PTR_STATUS(put), "a put");
        if (put != nullptr) ucp_request_free(put);  // Released once it has ended.
        const ucp_request_param_t how{};
        return ucp_ep_flush_nbx(endpoint, &how);
    }

    ucp_context_h context = nullptr;
    ucp_ep_h endpoint = nullptr;
    std::uint64_t count = 0;  ///< Completely received messages.

private:
    static ucs_status_t on_message(void* arg, const void*, std::size_t, void* data,
                                   std::size_t bytes, const ucp_am_recv_param_t* how) {
        auto& self = *static_cast<worker*>(arg);
        if ((how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
            ++self.count;
            return UCS_OK;  // The bytes are here; they are not read.
        }
        ucp_request_param_t into{};
        into.op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        into.user_data = &self;
        into.cb.recv_am = [](void* request, ucs_status_t, std::size_t, void* user) {
            ++static_cast<worker*>(user)->count;
            ucp_request_free(request);
        };
        ucp_am_recv_data_nbx(self.self_, data, self.arrived_.data(), bytes, &into);
        return UCS_INPROGRESS;
    }

    ucp_worker_h self_ = nullptr;
    std::vector<char> arrived_;
};

void serve(const peer_question& asked, worker& me, perf::channel& talk) {
    std::vector<char> memory(asked.size);
    if (asked.messages()) {
        talk.write_line("ready");
        // Only the last of a batch is answered, with one byte.
        const std::uint64_t batch = asked.is("message-rate") ? asked.depth : 1;
        if (batch != 1) memory.resize(1);
        std::uint64_t answered = 0;
        bench::serve_until_closed(talk, [&] {
            me.progress();
            if (me.count < answered + batch) return false;
            me.send(memory);
            answered += batch;
            return true;
        });
        return;
    }
    void* at = nullptr;
    ucp_mem_h handle = me.map(asked.block() ? nullptr : memory.data(), asked.size, at);
    void* key = nullptr;
    std::size_t key_bytes = 0;
    check(ucp_rkey_pack(me.context, handle, &key, &key_bytes), "ucp_rkey_pack");
    talk.write_line(std::to_string(reinterpret_cast<std::uint64_t>(at)));
    talk.write_line(bench::to_hex(key, key_bytes));
    bench::serve_until_closed(talk, [&] { return me.progress(); });
}

perf::measurement round_trips(const peer_question& asked, worker& me, perf::channel& talk) {
    talk.read_line();
    const std::vector<char> bytes(asked.size);
    std::uint64_t expected = 0;
    return perf::measure_round_trips(asked.seconds, [&] {
        me.send(bytes);
        ++expected;
        while (me.count != expected)
            me.progress();
    });
}

perf::measurement batches(const peer_question& asked, worker& me, perf::channel& talk) {
    talk.read_line();
    const std::vector<char> bytes(asked.size);
    std::vector<void*> open(asked.depth);
    std::uint64_t expected = 0;
    auto m = perf::measure_round_trips(asked.seconds, [&] {
        for (void*& each : open)
            each = me.start_send(bytes);
        for (void* each : open)
            me.finish(each);
        for (++expected; me.count != expected;)
            me.progress();
    });
    m.ops_per_s *= static_cast<double>(asked.depth);
    return m;
}

perf::measurement transfers(const peer_question& asked, worker& me, perf::channel& talk) {
    const std::uint64_t there = std::stoull(talk.read_line());
    const std::string packed = bench::from_hex(talk.read_line());
    ucp_rkey_h key = nullptr;
    check(ucp_ep_rkey_unpack(me.endpoint, packed.data(), &key), "ucp_ep_rkey_unpack");

    std::vector<std::vector<char>> own(asked.depth, std::vector<char>(asked.size));
    std::vector<void*> here;
    for (std::vector<char>& one : own) {
        void* at = one.data();
        if (asked.block()) me.map(nullptr, asked.size, at);
        here.push_back(at);
    }
    std::vector<void*> open(asked.depth, nullptr);
    std::size_t next = 0;
    auto m = perf::measure_round_trips(asked.seconds, asked.depth, [&] {
        me.finish(open[next]);
        const ucp_request_param_t how{};
        open[next] = asked.puts()
                         ? ucp_put_nbx(me.endpoint, here[next], asked.size, there, key, &how)
                         : ucp_get_nbx(me.endpoint, here[next], asked.size, there, key, &how);
        if (asked.delivered) open[next] = me.start_flush(open[next]);
        next = (next + 1) % asked.depth;
    });
    for (void* request : open)
        me.finish(request);
    return m;
}

perf::measurement measure(const peer_question& asked, worker& me, perf::channel& talk) {
    if (asked.is("message-latency")) return round_trips(asked, me, talk);
    return asked.is("message-rate") ? batches(asked, me, talk) : transfers(asked, me, talk);
}

}  // namespace

int main(int argc, char** argv) {
    return bench::answer_peer_by_address<worker>(argc, argv, "ucx", &serve, &measure);
}
