// UCX active messages, polling, one round trip at a time. The transport is UCX's own choice
// among those named in UCX_TLS, which the caller sets ("posix,cma", "tcp").
//   ucx_am SIZE SECONDS
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
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

/// A UCX context, worker and at most one endpoint.
class worker {
public:
    worker() {
        ucp_config_t* config = nullptr;
        check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_AM;
        check(ucp_init(&params, config, &context_), "ucp_init");
        ucp_config_release(config);
        ucp_worker_params_t how{};
        how.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        how.thread_mode = UCS_THREAD_MODE_SINGLE;
        check(ucp_worker_create(context_, &how, &worker_), "ucp_worker_create");
        ucp_am_handler_param_t handler{};
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                             UCP_AM_HANDLER_PARAM_FIELD_ARG;
        handler.id = 1;
        handler.cb = &worker::arrived;
        handler.arg = this;
        check(ucp_worker_set_am_recv_handler(worker_, &handler), "ucp_worker_set_am_recv_handler");
    }

    std::string address() {
        ucp_address_t* at = nullptr;
        std::size_t bytes = 0;
        check(ucp_worker_get_address(worker_, &at, &bytes), "ucp_worker_get_address");
        std::string hex;
        for (std::size_t i = 0; i < bytes; ++i)
            hex += fmt::format("{:02x}", reinterpret_cast<unsigned char*>(at)[i]);
        ucp_worker_release_address(worker_, at);
        return hex;
    }

    void connect(const std::string& hex) {
        std::vector<char> bytes;
        for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
            bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = reinterpret_cast<ucp_address_t*>(bytes.data());
        check(ucp_ep_create(worker_, &params, &endpoint_), "ucp_ep_create");
    }

    void send(const std::vector<char>& bytes) {
        ucp_request_param_t how{};
        void* request = ucp_am_send_nbx(endpoint_, 1, nullptr, 0, bytes.data(), bytes.size(), &how);
        if (request == nullptr) return;
        if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), "ucp_am_send_nbx");
        while (ucp_request_check_status(request) == UCS_INPROGRESS)
            ucp_worker_progress(worker_);
        ucp_request_free(request);
    }

    void progress() { ucp_worker_progress(worker_); }
    std::uint64_t count = 0;

private:
    static ucs_status_t arrived(void* self, const void*, std::size_t, void*, std::size_t,
                                const ucp_am_recv_param_t*) {
        ++static_cast<worker*>(self)->count;
        return UCS_OK;  // The bytes are not looked at: eager ones are already here.
    }
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    ucp_ep_h endpoint_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: UCX_TLS=posix,cma %s SIZE SECONDS\n", argv[0]);
        return 2;
    }
    const auto size = static_cast<std::size_t>(std::atoi(argv[1]));
    const std::vector<char> bytes(size);
    perf::forked_peer peer([&](perf::channel& talk) {
        worker me;
        talk.write_line(me.address());
        me.connect(talk.read_line());
        talk.write_line("ready");
        std::uint64_t answered = 0;
        for (unsigned idle = 0;;) {
            me.progress();
            if (me.count != answered) {
                me.send(bytes);
                ++answered;
                idle = 0;
            } else if (++idle % (1u << 16) == 0 && talk.closed()) {
                return;
            }
        }
    });
    worker me;
    const std::string theirs = peer.talk().read_line();
    peer.talk().write_line(me.address());
    me.connect(theirs);
    peer.talk().read_line();
    std::uint64_t expected = 0;
    auto m = perf::measure_round_trips(std::atof(argv[2]), [&] {
        me.send(bytes);
        ++expected;
        while (me.count != expected)
            me.progress();
    });
    m.test = "message-latency";
    m.uri = "ucx-am";
    m.size_bytes = size;
    m.bytes_per_s = 2 * m.ops_per_s * static_cast<double>(size);
    std::puts(perf::to_json(m).c_str());
    std::fflush(stdout);
}
