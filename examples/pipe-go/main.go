// A pipe: a peer that serves models of its own to Turnwire, written from the proto files alone.
//
// Usage: pipe [ADDRESS] (default 127.0.0.1:9101). With PIPE_TOKEN set, callers must send it as a bearer token.
//
// It has one model, "reverse", which says the user's words backwards. Exchange answer for a call to anything.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	llm "turnwire.example/pipe/gen/turnwire/llm/v1"
	packet "turnwire.example/pipe/gen/turnwire/packet/v1"
)

const model = "reverse"

type pipe struct {
	llm.UnimplementedLlmProxyServiceServer
}

func (pipe) ListModels(ctx context.Context, _ *llm.ListModelsRequest) (*llm.ListModelsResponse, error) {
	if err := checkToken(ctx); err != nil {
		return nil, err
	}
	return &llm.ListModelsResponse{Models: []*llm.Model{
		{ModelId: model, DisplayName: "Reverse", OwnedBy: "pipe", ContextTokens: 4096},
	}}, nil
}

func (pipe) StreamCompletion(request *llm.StreamCompletionRequest, stream grpc.ServerStreamingServer[llm.StreamCompletionResponse]) error {
	ctx := stream.Context() // ends when the caller leaves, and when its deadline passes
	if err := checkToken(ctx); err != nil {
		return err
	}
	if id := request.GetInput().GetModelId(); id != model {
		return status.Errorf(codes.NotFound, "no such model: %s", id)
	}
	words := strings.Fields(userText(request.GetInput()))
	started := &llm.AttemptStarted{Attempt: 1, Provider: "go", UpstreamModel: model}
	if err := send(stream, &llm.CompletionDelta{Delta: &llm.CompletionDelta_AttemptStarted{AttemptStarted: started}}); err != nil {
		return err
	}
	for _, word := range words {
		if strings.HasPrefix(word, "wait") {
			<-ctx.Done() // a model that takes long: it must still notice that nobody listens
		}
		if ctx.Err() != nil {
			fmt.Println("cancelled")
			return status.FromContextError(ctx.Err()).Err()
		}
		content := &llm.ContentDelta{Text: reverse(word) + " "}
		if err := send(stream, &llm.CompletionDelta{Delta: &llm.CompletionDelta_Content{Content: content}}); err != nil {
			return err
		}
	}
	count := uint32(len(words))
	usage := &llm.UsageDelta{Attempt: 1, Usage: &packet.Usage{InputTokens: count, OutputTokens: count}}
	finish := &llm.FinishDelta{Reason: packet.FinishReason_FINISH_REASON_STOP, RawReason: "stop"}
	return send(stream,
		&llm.CompletionDelta{Delta: &llm.CompletionDelta_Usage{Usage: usage}},
		&llm.CompletionDelta{Delta: &llm.CompletionDelta_Finish{Finish: finish}})
}

func send(stream grpc.ServerStreamingServer[llm.StreamCompletionResponse], deltas ...*llm.CompletionDelta) error {
	return stream.Send(&llm.StreamCompletionResponse{Deltas: deltas})
}

// userText is the last thing that the user said.
func userText(input *llm.CompletionInput) string {
	messages := input.GetMessages()
	for at := len(messages) - 1; at >= 0; at-- {
		if messages[at].GetRole() != llm.Role_ROLE_USER {
			continue
		}
		var text []string
		for _, part := range messages[at].GetParts() {
			text = append(text, part.GetText())
		}
		return strings.Join(text, " ")
	}
	return ""
}

func reverse(word string) string {
	letters := []rune(word)
	for from, to := 0, len(letters)-1; from < to; from, to = from+1, to-1 {
		letters[from], letters[to] = letters[to], letters[from]
	}
	return string(letters)
}

func checkToken(ctx context.Context) error {
	token := os.Getenv("PIPE_TOKEN")
	sent, _ := metadata.FromIncomingContext(ctx)
	if token != "" && strings.Join(sent.Get("authorization"), "") != "Bearer "+token {
		return status.Error(codes.Unauthenticated, "a valid bearer token is needed")
	}
	return nil
}

func main() {
	address := "127.0.0.1:9101"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	llm.RegisterLlmProxyServiceServer(server, pipe{})
	healthpb.RegisterHealthServer(server, health.NewServer())
	fmt.Printf("pipe on port %d\n", listener.Addr().(*net.TCPAddr).Port)
	log.Fatal(server.Serve(listener))
}
