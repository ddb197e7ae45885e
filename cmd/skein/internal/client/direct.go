package client

import (
	"context"
	"errors"

	"github.com/apache/arrow-go/v18/arrow/flight"
)

// fetch opens the stream of an endpoint, where it is: at the server, or at a worker
// of its cluster that has the rows. Connections to those are kept until Close.
func (c *Client) fetch(ctx context.Context, e *flight.FlightEndpoint) (*flight.Reader, error) {
	if len(e.GetLocation()) == 0 {
		return c.sql.DoGet(ctx, e.GetTicket())
	}
	other, err := c.at(e.GetLocation()[0].GetUri())
	if err != nil {
		return nil, err
	}
	return other.sql.DoGet(ctx, e.GetTicket())
}

// at is the connection to another address.
func (c *Client) at(uri string) (*Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.others[uri]; other != nil {
		return other, nil
	}
	other, err := Dial(uri)
	if err != nil {
		return nil, err
	}
	if c.others == nil {
		c.others = make(map[string]*Client)
	}
	c.others[uri] = other
	return other, nil
}

// Close ends the connections.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := []error{c.sql.Close()}
	for _, other := range c.others {
		errs = append(errs, other.Close())
	}
	c.others = nil
	return errors.Join(errs...)
}
