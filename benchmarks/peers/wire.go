package main

import (
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// shape is one service's method and how its messages look on the wire.
type shape struct {
	method string
	write  func(subjects []int, held int) []byte
	read   func(answer []byte, checks int) (refused int, err error)
}

var shapes = map[string]shape{
	"gubernator": {"/pb.gubernator.V1/GetRateLimits", writeGubernator, readGubernator},
	"ratelimit":  {"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", writeRatelimit, readRatelimit},
}

const (
	plenty = 1_000_000_000
	dayMs  = 86_400_000
)

// writeGubernator: GetRateLimitsReq, a limit for each subject in the request itself.
func writeGubernator(subjects []int, held int) []byte {
	var message []byte
	for _, subject := range subjects {
		limit := uint64(plenty)
		if subject%held == 0 {
			limit = 1
		}
		var one []byte
		one = text(one, 1, "checks")
		one = text(one, 2, name(subject))
		one = number(one, 3, 1) // hits
		one = number(one, 4, limit)
		one = number(one, 5, dayMs)
		message = nested(message, 1, one)
	}
	return message
}

// readGubernator: GetRateLimitsResp; status 1 is over the limit, field 5 an error.
func readGubernator(answer []byte, checks int) (int, error) {
	refused, answers := 0, 0
	err := each(answer, func(field protowire.Number, value uint64, body []byte) error {
		if field != 1 {
			return nil
		}
		answers++
		return each(body, func(field protowire.Number, value uint64, body []byte) error {
			if field == 1 && value == 1 {
				refused++
			}
			if field == 5 && len(body) > 0 {
				return fmt.Errorf("the service says: %s", body)
			}
			return nil
		})
	})
	return refused, counted(err, answers, checks)
}

// writeRatelimit: RateLimitRequest, a descriptor for each subject; limits stand in the service's file.
func writeRatelimit(subjects []int, held int) []byte {
	message := text(nil, 1, "weir")
	for _, subject := range subjects {
		key := "subject"
		if subject%held == 0 {
			key = "held"
		}
		entry := text(text(nil, 1, key), 2, name(subject))
		message = nested(message, 2, nested(nil, 1, entry))
	}
	return message
}

// readRatelimit: RateLimitResponse, a status for each descriptor; code 1 is OK, 2 over the limit.
func readRatelimit(answer []byte, checks int) (int, error) {
	refused, answers := 0, 0
	err := each(answer, func(field protowire.Number, value uint64, body []byte) error {
		if field != 2 {
			return nil
		}
		answers++
		return each(body, func(field protowire.Number, value uint64, body []byte) error {
			if field == 1 && value == 2 {
				refused++
			}
			return nil
		})
	})
	return refused, counted(err, answers, checks)
}

func counted(err error, answers, checks int) error {
	if err == nil && answers != checks {
		return fmt.Errorf("%d answers to %d checks", answers, checks)
	}
	return err
}

func name(subject int) string { return "user-" + strconv.Itoa(subject) }

func text(to []byte, field protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(to, field, protowire.BytesType), value)
}

func nested(to []byte, field protowire.Number, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, field, protowire.BytesType), body)
}

func number(to []byte, field protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(to, field, protowire.VarintType), value)
}

// each walks over a message's fields: numbers in `value`, texts and messages in `body`.
func each(message []byte, see func(field protowire.Number, value uint64, body []byte) error) error {
	for len(message) > 0 {
		field, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
		var value uint64
		var body []byte
		switch kind {
		case protowire.VarintType:
			value, size = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			body, size = protowire.ConsumeBytes(message)
		default:
			size = protowire.ConsumeFieldValue(field, kind, message)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
		if err := see(field, value, body); err != nil {
			return err
		}
	}
	return nil
}

// bytesCodec hands messages over as they are. It says it is proto, since that is what they hold.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(message any) ([]byte, error) {
	raw, is := message.([]byte)
	if !is {
		return nil, fmt.Errorf("a %T is no message", message)
	}
	return raw, nil
}

func (bytesCodec) Unmarshal(raw []byte, message any) error {
	to, is := message.(*[]byte)
	if !is {
		return fmt.Errorf("a %T holds no message", message)
	}
	*to = append([]byte(nil), raw...)
	return nil
}
